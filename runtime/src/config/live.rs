//! The part of the configuration that a running node takes anew: who may reach a class, and its variables.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Access, ClassConfig, Env, NativeConfig};

/// One class as it is right now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveClass {
    /// Its name, shared by every address of the class.
    pub name: Arc<str>,
    /// Who may send it requests.
    pub access: Access,
    /// What `env.get` answers.
    pub env: Arc<Env>,
}

/// All classes as they are right now. Replaced as a whole; each core keeps a copy of its own and is told of a new one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LiveClasses(HashMap<Arc<str>, LiveClass>);

impl LiveClasses {
    /// From a configuration. Native classes are for actors only.
    #[must_use]
    pub fn new(classes: &[ClassConfig], natives: &[NativeConfig]) -> Self {
        let live = |class: &ClassConfig| LiveClass {
            name: Arc::clone(&class.name),
            access: class.access,
            env: Arc::new(class.env.clone()),
        };
        let native =
            |class: &NativeConfig| LiveClass { name: Arc::clone(&class.name), access: Access::Internal, env: Arc::default() };
        let all = classes.iter().map(live).chain(natives.iter().map(native));
        Self(all.map(|class| (Arc::clone(&class.name), class)).collect())
    }

    /// The class of that name, if it is served.
    #[must_use]
    pub fn get(&self, class: &str) -> Option<&LiveClass> {
        self.0.get(class)
    }
}
