//! One row of the table of goals, measured.

use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};

/// What a row's numbers are compared by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goal {
    /// The ratio to the peer is at least so much.
    RatioAtLeast,
    /// Our own number is at most so much.
    AtMost,
}

/// A measured row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: String,
    /// The unit of `ours` and `peer`, and, without a peer, of `range` and `goal`.
    pub(crate) unit: &'static str,
    /// Ours over the peer's, the median of all pairs.
    pub(crate) ratio: Option<f64>,
    /// The smallest and the largest: of the ratio where there is one, of `ours` otherwise.
    pub(crate) range: (f64, f64),
    pub(crate) ours: f64,
    pub(crate) peer: Option<f64>,
    pub(crate) kind: Goal,
    pub(crate) goal: f64,
    /// What else the goal asks for holds too.
    pub(crate) also_met: bool,
    /// Legs that were not counted because the disk changed meanwhile.
    pub(crate) void_legs: usize,
    /// What a reader must know to judge the number.
    pub(crate) note: String,
    /// More columns, for rows that have them.
    pub(crate) details: String,
}

impl Row {
    pub(crate) fn met(&self) -> bool {
        self.also_met
            && match self.kind {
                Goal::RatioAtLeast => self.ratio.is_some_and(|ratio| ratio >= self.goal),
                Goal::AtMost => self.ours <= self.goal,
            }
    }

    /// One object on one line, for programs. `ratio` and `peer` are null where a row has no peer; `goal` is a least ratio where
    /// there is a ratio and a largest number in the row's unit elsewhere.
    pub(crate) fn json(&self) -> Value {
        json!({
            "row": self.name,
            "ratio": self.ratio.map(rounded),
            "range": [rounded(self.range.0), rounded(self.range.1)],
            "ours": rounded(self.ours),
            "peer": self.peer.map(rounded),
            "goal": self.goal,
            "met": self.met(),
            "void_legs": self.void_legs,
            "commit": *COMMIT,
        })
    }
}

/// Four digits behind the point: no measurement here has more.
fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}

/// The commit that is checked out, with a `+` if files differ from it.
pub(crate) static COMMIT: LazyLock<String> = LazyLock::new(|| {
    let git = |args: &[&str]| Command::new("git").args(args).output().ok().filter(|output| output.status.success());
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let differs = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|output| !output.stdout.is_empty());
    format!("{}{}", String::from_utf8_lossy(&commit.stdout).trim(), if differs { "+" } else { "" })
});

/// The middle one of numbers, which are sorted by it.
pub(crate) fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
