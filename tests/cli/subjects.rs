//! Those whose personal data is sealed: their keys, page by page.

use crate::cli::rig::prelude::*;

/// Whether each row names another key.
fn apart(keys: &[Value]) -> bool {
    let names: BTreeSet<_> = keys.iter().map(|key| key["key"].as_str()).collect();
    names.len() == keys.len()
}

#[test]
fn the_keys_of_subjects_are_listed_page_by_page_and_those_of_one_as_a_whole() {
    let rig = Rig::new();
    let policy = r#"{"rules":[{"path":"$.name","action":"seal"}],"subject":"$.id"}"#;
    let policy = rig.file("policy.json", policy).display().to_string();
    rig.ok(&["tenant", "pii", "default", &policy]);
    for id in ["a", "b", "c"] {
        let payload = format!(r#"{{"id":"{id}","name":"Erika {id}"}}"#);
        rig.ok(&["emit", "customer.changed", "--payload", &payload]);
    }

    let page = rig.run(&["subject", "list", "--limit", "2"]);
    assert!(page.out.lines().count() == 3 && page.err.contains("--after"), "{page:?}");
    let page = rig.json(&["subject", "list", "--limit", "2"]);
    let next = page["next"].as_str().unwrap();
    assert_eq!(rig.items(&["subject", "list", "--limit", "2", "--after", next]).len(), 1);
    let all = rig.ok(&["subject", "list", "--limit", "1", "--all"]);
    assert_eq!(all.lines().count(), 4, "{all}");
    assert_eq!(rig.ok(&["subject", "list", "--limit", "2", "--all", "--json"]).lines().count(), 3);

    // One that was erased and came again, more often than a page has rows.
    let file = Connection::open(rig.dir.path().join("oncebox.db")).unwrap();
    let more = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
                INSERT INTO subjects (tenant, subject, key_id, created_at, erased_at)
                SELECT tenant, subject, randomblob(16), created_at, created_at
                  FROM subjects, n
                 WHERE seq = 1";
    assert_eq!(file.execute(more, []).unwrap(), 1000);
    let keys = rig.json(&["subject", "show", "a"])["keys"].as_array().unwrap().clone();
    assert_eq!((keys.len(), apart(&keys)), (1001, true));
    assert!(keys[0]["erased_at"].is_string() && keys[1000]["erased_at"].is_null(), "newest first");
    assert_eq!(rig.ok(&["subject", "show", "a"]).lines().count(), 1002);
    assert_eq!(rig.json(&["subject", "show", "b"])["keys"].as_array().unwrap().len(), 1);
    let erased = rig.ok(&["subject", "list", "--erased", "--all", "--json"]);
    assert_eq!(erased.lines().count(), 1000);
    assert!(rig.ok(&["subject", "erase", "a", "--yes"]).contains("erased: 1 key destroyed"));
    assert_eq!(rig.run(&["subject", "show", "nobody"]).code, 4);
    assert_eq!(rig.run(&["subject", "list", "--after", "x"]).code, 65);
}
