//! Reading the file of `--api-tokens`: who may use the service door, a line each, `name token`.
//!
//! The file holds secrets: nobody but the server's user may read it, and no error quotes a line of it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::Secret;
use crate::limits::{
    API_TOKEN_BYTES_MAX, API_TOKEN_BYTES_MIN, API_TOKEN_NAME_BYTES_MAX, API_TOKENS_FILE_BYTES_MAX, API_TOKENS_MAX,
};

/// What a caller of the service door is called that needs no token.
pub(crate) const LOCAL: &str = "local";

/// One token of the service door.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiToken {
    /// Whose it is. A name may have several, so that one can be replaced by another without a gap.
    pub name: Arc<str>,
    /// 16 to 256 visible ASCII characters.
    pub token: Secret,
}

/// Reads and checks a file.
pub(super) fn read(path: &Path) -> Result<Vec<ApiToken>, Vec<String>> {
    let place = path.display();
    let fail = |error: std::io::Error| vec![format!("api-tokens {place}: {error}")];
    let file = File::open(path).map_err(fail)?;
    let facts = file.metadata().map_err(fail)?;
    // SAFETY: it takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    if facts.mode() & 0o077 != 0 || facts.uid() != user {
        let words = "only the user who runs the node may be able to read it: make it that user's, and chmod 600";
        return Err(vec![format!("api-tokens {place}: {words}")]);
    }
    let mut text = String::new();
    file.take(API_TOKENS_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > API_TOKENS_FILE_BYTES_MAX {
        return Err(vec![format!("api-tokens {place}: it is larger than {API_TOKENS_FILE_BYTES_MAX} bytes")]);
    }
    parse(&text).map_err(|problems| problems.into_iter().map(|problem| format!("api-tokens {place}{problem}")).collect())
}

/// What is wrong is said as it follows the file's name.
fn parse(text: &str) -> Result<Vec<ApiToken>, Vec<String>> {
    let (mut tokens, mut problems) = (Vec::<ApiToken>::new(), Vec::new());
    let lines = text.lines().zip(1..).map(|(line, number): (_, u32)| (line.trim(), number));
    for (line, number) in lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')) {
        match parse_line(line) {
            Ok(token) if tokens.iter().any(|known| known.token == token.token) => {
                problems.push(format!(":{number}: this token stands above already"));
            }
            Ok(token) => tokens.push(token),
            Err(problem) => problems.push(format!(":{number}: {problem}")),
        }
    }
    if tokens.len() > API_TOKENS_MAX {
        problems.push(format!(": {} tokens; at most {API_TOKENS_MAX} are kept", tokens.len()));
    } else if tokens.is_empty() && problems.is_empty() {
        problems.push(": there is no token in it; write lines of a name and a token".into());
    }
    if problems.is_empty() { Ok(tokens) } else { Err(problems) }
}

fn parse_line(line: &str) -> Result<ApiToken, String> {
    let mut words = line.split_ascii_whitespace();
    let (Some(name), Some(token), None) = (words.next(), words.next(), words.next()) else {
        return Err("write a name and a token, with a space between them".into());
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.len() > API_TOKEN_NAME_BYTES_MAX || !name.bytes().all(is_name) {
        return Err(format!("a name is 1 to {API_TOKEN_NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"));
    }
    if name == LOCAL {
        return Err(format!("{LOCAL:?} is what callers without a token are called; choose another name"));
    }
    if !(API_TOKEN_BYTES_MIN..=API_TOKEN_BYTES_MAX).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("a token is {API_TOKEN_BYTES_MIN} to {API_TOKEN_BYTES_MAX} visible ASCII characters"));
    }
    Ok(ApiToken { name: name.into(), token: Secret(token.into()) })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn names_may_have_several_tokens_and_comments_are_passed_over() {
        let tokens =
            parse("# who\n\nshop 0123456789abcdef\n  shop\tfedcba9876543210#  \nReports-2.x aaaaaaaaaaaaaaaa\n").expect("is right");
        let read: Vec<_> = tokens.iter().map(|token| (&*token.name, token.token.0.as_str())).collect();
        assert_eq!(read, [("shop", "0123456789abcdef"), ("shop", "fedcba9876543210#"), ("Reports-2.x", "aaaaaaaaaaaaaaaa")]);
    }

    #[test]
    fn what_is_wrong_names_its_line_and_quotes_no_secret() {
        let text =
            "shop\nshop hunter2\nlocal 0123456789abcdef\nsh/op 0123456789abcdef\na 0123456789abcdef\nb 0123456789abcdef\nc d e\n";
        let problems = parse(text).expect_err("is wrong");
        assert_eq!(problems.len(), 6, "{problems:?}");
        for (problem, line) in problems.iter().zip([1, 2, 3, 4, 6, 7]) {
            assert!(problem.starts_with(&format!(":{line}: ")), "{problem}");
            assert!(!problem.contains("hunter2") && !problem.contains("0123456789abcdef"), "{problem}");
        }
        assert_eq!(parse("# nobody\n").expect_err("is empty").len(), 1);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        std::fs::write(&path, "shop 0123456789abcdef\n").expect("writes");
        for (mode, is_right) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("sets");
            assert_eq!(read(&path).is_ok(), is_right, "{mode:o}");
        }
        assert!(read(&directory.path().join("missing")).is_err());
    }
}
