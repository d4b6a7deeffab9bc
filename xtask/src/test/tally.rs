//! Counts tests by what libtest prints.

use std::collections::BTreeSet;

/// What a test prints that cannot run here: it returns early, and libtest takes it for passed.
const MARK: &str = "SKIPPED:";

/// Counts over the output of any number of test binaries.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Tests that said so, by test binary and name.
    skipped: BTreeSet<(u64, String)>,
    skipped_lines: Vec<String>,
    binaries: u64,
}

impl Tally {
    /// Counts what one run of `cargo test` printed.
    pub(super) fn add(&mut self, output: &str) {
        let mut test = "";
        for line in output.lines() {
            if line.starts_with("running ") && line.contains(" test") {
                self.binaries += 1;
                test = "";
            }
            // With --show-output, the output of each test comes under its name; with --nocapture, after
            // it, from the same line on.
            if let Some(name) = shown_output_of(line).or_else(|| started(line)) {
                test = name;
            }
            if let Some((_, why)) = line.split_once(MARK) {
                let why = why.trim();
                // A test may name itself, by its path or by the last part of it.
                let named = test.rsplit("::").next().is_some_and(|last| {
                    [test, last].iter().any(|name| why.starts_with(&format!("{name}: ")))
                });
                let told = if test.is_empty() || named {
                    why.to_owned()
                } else {
                    format!("{test}: {why}")
                };
                self.skipped.insert((self.binaries, test.to_owned()));
                self.skipped_lines.push(told);
            }
            if let Some(result) = line.strip_prefix("test result: ") {
                self.passed += number_before(result, " passed");
                self.failed += number_before(result, " failed");
                self.ignored += number_before(result, " ignored");
            }
        }
    }

    /// Why tests were skipped, a line each.
    pub(super) fn skipped_lines(&self) -> Vec<String> {
        let ignored =
            (self.ignored > 0).then(|| format!("{} tests marked #[ignore]", self.ignored));
        self.skipped_lines.iter().cloned().chain(ignored).collect()
    }

    /// `N passed, N failed, N skipped`.
    pub(super) fn counts(&self) -> String {
        let skipped = self.skipped.len() as u64;
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed.saturating_sub(skipped),
            self.failed,
            skipped + self.ignored
        )
    }
}

/// The name in `---- NAME stdout ----`.
fn shown_output_of(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// The name in `test NAME ... `.
fn started(line: &str) -> Option<&str> {
    Some(line.strip_prefix("test ")?.split_once(" ... ")?.0)
}

/// The number that stands before that word.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split_once(word).map_or("", |(before, _)| before);
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // No line may begin as libtest's do, as these tests are counted like others.
    fn output(lines: &[&str]) -> String {
        lines.iter().map(|line| format!("{}\n", line.trim_start_matches('|'))).collect()
    }

    #[test]
    fn results_of_all_binaries_are_summed() {
        let mut tally = Tally::default();
        tally.add(&output(&[
            "|running 2 tests",
            "|test a ... ok",
            "|test b ... FAILED",
            "|test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
            "|running 40 tests",
            "|test result: ok. 38 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out",
        ]));
        tally.add(&output(&["|test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured"]));
        assert_eq!(tally.counts(), "42 passed, 1 failed, 2 skipped");
        assert_eq!(tally.skipped_lines(), ["2 tests marked #[ignore]"]);
    }

    #[test]
    fn a_test_that_says_it_was_skipped_did_not_pass() {
        let skipped = ["needs ", "root"].concat();
        let mut tally = Tally::default();
        tally.add(&output(&[
            "|running 3 tests",
            &format!("|test grows ... {MARK} {skipped}"),
            "|ok",
            "|test loses ... ",
            &format!("|{MARK} {skipped}"),
            &format!("|{MARK} loses: twice"),
            "|ok",
            "|test passes ... ok",
            "|test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        ]));
        assert_eq!(tally.counts(), "1 passed, 0 failed, 2 skipped");
        assert_eq!(
            tally.skipped_lines(),
            ["grows: needs root", "loses: needs root", "loses: twice"]
        );
    }

    #[test]
    fn shown_output_is_attributed_to_its_test() {
        let mut tally = Tally::default();
        tally.add(&output(&[
            "|running 2 tests",
            "|test a ... ok",
            "|test b ... ok",
            "|successes:",
            "|---- a stdout ----",
            &format!("|{MARK} needs root"),
            "|test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        ]));
        assert_eq!(tally.counts(), "1 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skipped_lines(), ["a: needs root"]);
    }
}
