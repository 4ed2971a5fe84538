//! The first sentence of a doc comment is read by strangers, once: few of its words may stand for something else.

use std::fs;

use super::{files, shown};

/// Words that stand for something which the reader has to find.
const STANDING_FOR_OTHERS: [&str; 5] = ["what", "that", "those", "one", "it"];
/// So many of them are understood.
const MOST: usize = 2;

/// The doc comments of a file: the number of the first line, and the text.
fn doc_comments(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(words) = line.trim_start().strip_prefix("///") else {
            is_inside = false;
            continue;
        };
        if !is_inside {
            all.push((number, String::new()));
        }
        is_inside = true;
        let comment = &mut all.last_mut().unwrap().1;
        comment.push_str(words.trim());
        comment.push(' ');
    }
    all
}

/// The text up to its first full stop, or another mark that ends a statement.
fn first_sentence(text: &str) -> &str {
    let ends = [". ", ": ", "; ", "! ", "? "];
    let sentences = ends.iter().map(|end| text.split_once(end).map_or(text, |(first, _)| first));
    sentences.min_by_key(|sentence| sentence.len()).unwrap_or(text)
}

/// How many words of a sentence stand for something else; names of code are none.
fn standing_for_others(sentence: &str) -> usize {
    let prose = sentence.split('`').step_by(2);
    let words = prose.flat_map(|part| part.split(|letter: char| !letter.is_alphanumeric()));
    words.filter(|word| STANDING_FOR_OTHERS.contains(&word.to_lowercase().as_str())).count()
}

#[test]
fn a_doc_comment_begins_with_a_sentence_that_a_stranger_understands() {
    let mut faults = Vec::new();
    for file in files("src", "rs") {
        for (line, comment) in doc_comments(&fs::read_to_string(&file).unwrap()) {
            let sentence = first_sentence(&comment);
            if standing_for_others(sentence) > MOST {
                faults.push(format!("{}:{line}: {sentence}", shown(&file)));
            }
        }
    }
    let rule = format!("more than {MOST} of {STANDING_FOR_OTHERS:?}: say the noun");
    assert!(faults.is_empty(), "{rule}\n{}", faults.join("\n"));
}

#[test]
fn planted_sentences_are_found() {
    let text = "/// What it is, of those that are. Fine.\n/// Further.\nfn x() {}\n/// A noun.\n";
    let comments = doc_comments(text);
    assert_eq!(comments.len(), 2);
    assert_eq!(comments[1].0, 4);
    assert_eq!(first_sentence(&comments[0].1), "What it is, of those that are");
    assert_eq!(standing_for_others("What it is, of those that are."), 4);
    assert_eq!(standing_for_others("A noun with `that` and `it`, one."), 1);
}
