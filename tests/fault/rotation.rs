//! A rotation under load, killed in between: it goes on where its rows stand.

use crate::fault::process::prelude::*;

#[test]
fn rotations_that_are_killed_go_on_and_lose_and_refuse_nothing() {
    let home = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    let process = Process::start(home.path());
    let made =
        process.call("POST", "/v1/subscriptions", &json!({ "name": "erp", "url": receiver.url() }));
    // The receiver knows one secret at a time.
    let known = Arc::new(Mutex::new(made.is(201).json()["secret"].as_str().unwrap().to_owned()));
    let (accepted, refused) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(Mutex::new(0)));
    let (secret, noted, counted) =
        (Arc::clone(&known), Arc::clone(&accepted), Arc::clone(&refused));
    receiver.decide(move |request| {
        let is_ping = String::from_utf8_lossy(&request.body).contains("oncebox.ping");
        let is_right = request.is_signed(&secret.lock().unwrap());
        if is_right && !is_ping {
            noted.lock().unwrap().insert(request.field("x-idempotency-key").unwrap().to_owned());
        } else if !is_ping {
            *counted.lock().unwrap() += 1;
        }
        Reply::status(if is_right { 204 } else { 401 })
    });
    let place = Mutex::new((process.address, process.token()));
    let done = AtomicBool::new(false);
    let (published, process) = thread::scope(|scope| {
        let mut process = process;
        let publisher = scope.spawn(|| {
            let mut count = 0;
            while !done.load(Ordering::SeqCst) {
                let (address, token) = place.lock().unwrap().clone();
                let event = json!({ "event_type": "a", "idempotency_key": format!("e-{count}"), "payload": {} });
                let answer = call(address, &token, "POST", "/v1/events", &event);
                count += usize::from(answer.is_ok_and(|answer| matches!(answer.status, 200 | 201)));
                thread::sleep(ms(2));
            }
            count
        });
        for n in 0..6 {
            let credential = |process: &Process, state: &str| -> Value {
                let path = format!("/v1/credentials?subscription=erp&state={state}");
                process.call("GET", &path, &Value::Null).is(200).json()["items"][0].clone()
            };
            let old = credential(&process, "active")["id"].as_str().unwrap().to_owned();
            let path = format!("/v1/credentials/{old}/rotate");
            let next = process.post(&path, &json!({ "overlap": "1h" }));
            // Before the first ping, while it is under way, or after it.
            thread::sleep(ms(n * 250));
            process = process.killed(home.path());
            *place.lock().unwrap() = (process.address, process.token());
            next["secret"].as_str().unwrap().clone_into(&mut known.lock().unwrap());
            until("it is promoted", || credential(&process, "active")["id"] == next["id"]);
            assert_eq!(credential(&process, "retiring")["id"], old.as_str());
            process.call("POST", &format!("/v1/credentials/{old}/revoke"), &Value::Null).is(200);
        }
        done.store(true, Ordering::SeqCst);
        (publisher.join().unwrap(), process)
    });
    process.finish();
    assert_eq!(*refused.lock().unwrap(), 0);
    assert_eq!(accepted.lock().unwrap().len(), published);
    file::check(&home.path().join("data/oncebox.db"));
}
