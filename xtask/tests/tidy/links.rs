//! Links between the documents of this repository.

use crate::{assert_none, files_ending_in, read, root};
use std::path::Path;

#[test]
fn links_in_documents_lead_somewhere() {
    let mut problems = Vec::new();
    for document in files_ending_in(&[".md"]) {
        let text = read(&document);
        for target in targets(&text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { document.clone() } else { document.parent().unwrap_or(Path::new("")).join(file) };
            if !root().join(&linked).exists() {
                problems.push(format!("{}: {target}: no such file", document.display()));
            } else if !anchor.is_empty() && !anchors(&read(&linked)).any(|known| known == anchor) {
                problems.push(format!("{}: {target}: no such heading", document.display()));
            }
        }
    }
    assert_none("dead links", &problems);
}

/// What `](target)` points at, other than addresses of the outside.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let linked = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    linked.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// What headings may be linked as: lower case, spaces as hyphens, other punctuation left out.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[test]
fn targets_and_headings_are_recognized() {
    let text = "# One `two`, three\n[a](b.md) [c](https://example.org) ![d](#one-two-three)";
    assert_eq!(targets(text).collect::<Vec<_>>(), ["b.md", "#one-two-three"]);
    assert_eq!(anchors(text).next().as_deref(), Some("one-two-three"));
}
