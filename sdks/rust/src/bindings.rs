//! What `wit-bindgen` makes of the package `wasmkeep:actor`. Generated here once, so that a guest crate needs neither the
//! interface files nor the generator.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]

wit_bindgen::generate!({
    path: "../../wit",
    world: "wasmkeep:actor/actor",
    pub_export_macro: true,
    export_macro_name: "export_bindings",
    default_bindings_module: "wasmkeep_sdk::bindings",
    additional_derives: [PartialEq],
});
