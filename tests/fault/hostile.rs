//! A hundred hostile endpoints beside four healthy ones: they stop no healthy one, and cost the process no thread and
//! no memory.

use std::io;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::{Domain, SockRef, Socket, Type};

use crate::fault::process::prelude::*;
use crate::rig::http::read_message;

const HOSTILE: usize = 100;
const HEALTHY: usize = 4;
/// Events until each hostile endpoint was called and buffers, caches and thread stacks have their size.
const WARM_UP: usize = 100;
const MEASURED: usize = 400;
/// Between two events for the healthy ones.
const EVERY: Duration = Duration::from_millis(50);
/// Growth allowed after the warm-up, in KiB. Measured is 7 to 11 MiB: rows in SQLite's caches, and what the allocator
/// keeps for 64 deliverers. One answer read whole would be 1 GB.
const GROWTH_KIB: u64 = 24 << 10;
/// What an attempt may take beyond its time limit on a machine that is busy. Without a limit it would never end.
const SLACK_MS: u64 = 180_000;

/// A way to be hostile: where it listens, its own time limit, and how its attempts are recorded.
struct Kind {
    name: &'static str,
    url: String,
    timeout_ms: Option<u64>,
    class: &'static str,
    /// A part of the reason that a person reads; empty for an attempt that succeeds.
    reason: &'static str,
}

/// Serves each connection on a thread of its own, until the test is over.
fn serve(
    over: &Over,
    answer: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (over, answer) = (Arc::clone(over), Arc::new(answer));
    thread::spawn(move || {
        for stream in listener.incoming() {
            if over.load(Ordering::SeqCst) {
                break;
            }
            let (Ok(stream), answer) = (stream, Arc::clone(&answer)) else { continue };
            // The client hangs up in the middle: an error is the end of the exchange.
            thread::spawn(move || drop(answer(stream)));
        }
    });
    address
}

/// Sends the same bytes until the client hangs up, with a pause after each time.
fn repeat(mut stream: &TcpStream, bytes: &[u8], most: u64, pause: Duration) -> io::Result<()> {
    let mut sent = 0;
    while sent < most {
        stream.write_all(bytes)?;
        sent += u64::try_from(bytes.len()).unwrap();
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
    Ok(())
}

const GIGABYTE: u64 = 1 << 30;

/// A server with a certificate that nobody vouches for.
fn untrusted(over: &Over) -> SocketAddr {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    serve(over, move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
        read_message(&mut StreamOwned::new(connection, stream)).map(drop)
    })
}

type Over = Arc<AtomicBool>;

fn http(address: SocketAddr) -> String {
    format!("http://{address}/hook")
}

fn https(address: SocketAddr) -> String {
    format!("https://{address}/hook")
}

/// A kind with the settings' time limit, whose attempts fail as transient.
fn kind(name: &'static str, url: String, reason: &'static str) -> Kind {
    Kind { name, url, timeout_ms: None, class: "transient", reason }
}

impl Kind {
    fn within(self, timeout_ms: u64) -> Self {
        Self { timeout_ms: Some(timeout_ms), ..self }
    }

    fn succeeds(self) -> Self {
        Self { class: "success", ..self }
    }
}

fn resets(over: &Over) -> Vec<Kind> {
    let address = serve(over, |mut stream| {
        read_message(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le")?;
        // Closed with nothing to linger for, a connection is reset.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))
    });
    vec![kind("reset", http(address), "Connection reset")]
}

fn hangs(over: &Over) -> Vec<Kind> {
    let address = serve(over, |mut stream| {
        while read_message(&mut stream)?.is_some() {
            thread::sleep(Duration::from_secs(10));
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        }
        Ok(())
    });
    vec![
        kind("hangs", http(address), "no answer in time").within(2_000),
        kind("hangs-allowed", http(address), "").succeeds(),
    ]
}

fn drips(over: &Over) -> Vec<Kind> {
    let second = Duration::from_secs(1);
    let head = serve(over, move |mut stream| {
        read_message(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        repeat(&stream, b"x", GIGABYTE, second)
    });
    let body = serve(over, move |mut stream| {
        read_message(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n")?;
        repeat(&stream, b"x", 60_000, second)
    });
    let handshake = serve(over, move |mut stream| {
        stream.read_exact(&mut [0; 64])?;
        // The start of a record of 16 KiB, which holds the server's part of the handshake.
        stream.write_all(b"\x16\x03\x03\x40\x00\x02")?;
        repeat(&stream, b"\0", GIGABYTE, second)
    });
    vec![
        kind("drips-head", http(head), "no answer in time").within(2_000),
        // A status has come, so its body is of no account; it is read until the time is over.
        kind("drips-body", http(body), "").within(2_000).succeeds(),
        kind("drips-handshake", https(handshake), "in time").within(2_000),
    ]
}

fn huge_bodies(over: &Over) -> Vec<Kind> {
    let huge = |head: String| {
        serve(over, move |mut stream| {
            read_message(&mut stream)?;
            stream.write_all(head.as_bytes())?;
            repeat(&stream, &[b'x'; 16 << 10], GIGABYTE, Duration::ZERO)
        })
    };
    let failed = huge(format!("HTTP/1.1 500 x\r\ncontent-length: {GIGABYTE}\r\n\r\n"));
    let success = huge(format!("HTTP/1.1 200 OK\r\ncontent-length: {GIGABYTE}\r\n\r\n"));
    let chunk = format!("HTTP/1.1 500 x\r\ntransfer-encoding: chunked\r\n\r\n{GIGABYTE:x}\r\n");
    vec![
        kind("huge-body", http(failed), "answered 500"),
        kind("huge-chunk", http(huge(chunk)), "answered 500"),
        kind("huge-success", http(success), "").succeeds(),
    ]
}

fn bad_tls(over: &Over) -> Vec<Kind> {
    let no_tls = serve(over, |mut stream| {
        stream.write_all(b"220 mail.example ESMTP ready\r\n")?;
        stream.read_exact(&mut [0; 64])
    });
    let why = "invalid peer certificate: UnknownIssuer";
    vec![
        kind("untrusted", https(untrusted(over)), why),
        kind("no-tls", https(no_tls), "received corrupt message"),
    ]
}

fn redirects(over: &Over, called: &Arc<AtomicUsize>) -> Vec<Kind> {
    let called = Arc::clone(called);
    let address = serve(over, move |mut stream| {
        let itself = http(stream.local_addr()?);
        while read_message(&mut stream)?.is_some() {
            called.fetch_add(1, Ordering::SeqCst);
            let fields = format!("location: {itself}\r\ncontent-length: 0");
            stream.write_all(format!("HTTP/1.1 302 Found\r\n{fields}\r\n\r\n").as_bytes())?;
        }
        Ok(())
    });
    vec![Kind { class: "validation", ..kind("redirects", http(address), "answered 302") }]
}

fn huge_heads(over: &Over) -> Vec<Kind> {
    let huge = |part: &'static [u8]| {
        serve(over, move |mut stream| {
            read_message(&mut stream)?;
            stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
            repeat(&stream, part, GIGABYTE, Duration::ZERO)
        })
    };
    vec![
        // The status has come; what follows it without end is not read.
        kind("huge-head", http(huge(b"x-n: 1\r\n")), "").succeeds(),
        kind("huge-field", http(huge(b"x")), "").succeeds(),
    ]
}

/// A port that nobody listens on, and that nobody else gets.
fn closed_port() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket
}

fn subscribe(process: &Process, name: &str, url: &str, timeout_ms: Option<u64>) {
    let event_type = if name.starts_with("healthy") { "healthy" } else { "hostile" };
    let mut body = json!({ "name": name, "url": url, "event_types": [event_type] });
    if let Some(timeout) = timeout_ms {
        body["policy"] = json!({ "timeout": format!("{timeout}ms") });
    }
    process.post("/v1/subscriptions", &body);
}

fn publish(process: &Process, event_type: &str, key: &str) {
    let event = json!({ "event_type": event_type, "idempotency_key": key, "payload": {} });
    process.post("/v1/events", &event);
}

/// Threads of a process, and its resident memory in KiB.
fn taken(id: u32) -> (usize, u64) {
    let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (threads, rss.trim_end_matches(" kB").trim().parse().unwrap())
}

#[test]
fn hostile_endpoints_stop_no_healthy_one_and_cost_the_process_no_memory() {
    let home = tempfile::tempdir().unwrap();
    let settings = "[listen]\napi = \"127.0.0.1:0\"\n[delivery]\nallow = [\"127.0.0.0/8\"]\n\
                    steps = [\"200ms\", \"2s\"]\nmax_attempts = 1000\n[disk]\nreserve = 0\n";
    fs::write(home.path().join("oncebox.toml"), settings).unwrap();
    let process = Process::start(home.path());
    let (over, redirected, kept) = (Arc::default(), Arc::default(), closed_port());
    let refused = kept.local_addr().unwrap().as_socket().unwrap();
    let kinds = [
        vec![kind("refused", http(refused), "Connection refused")],
        resets(&over),
        hangs(&over),
        drips(&over),
        huge_bodies(&over),
        bad_tls(&over),
        redirects(&over, &redirected),
        huge_heads(&over),
    ];
    let mut numbers = BTreeMap::new();
    for n in 0..HOSTILE {
        let forms = &kinds[n % kinds.len()];
        let kind = &forms[n / kinds.len() % forms.len()];
        *numbers.entry(kind.name).or_insert(0) += 1;
        subscribe(&process, &format!("{}-{n}", kind.name), &kind.url, kind.timeout_ms);
    }
    // Which event arrived where.
    let arrivals: Arc<Mutex<BTreeSet<(usize, String)>>> = Arc::default();
    let receivers: [Receiver; HEALTHY] = std::array::from_fn(|n| {
        let (receiver, arrivals) = (Receiver::new(), Arc::clone(&arrivals));
        receiver.decide(move |message| {
            let key = message.field("x-idempotency-key").unwrap().to_owned();
            arrivals.lock().unwrap().insert((n, key));
            Reply::status(200)
        });
        receiver
    });
    for (n, receiver) in receivers.iter().enumerate() {
        subscribe(&process, &format!("healthy-{n}"), &receiver.url(), None);
    }

    let (mut count, mut samples) = (0_usize, Vec::new());
    while count < WARM_UP + MEASURED {
        if count % 40 == 0 {
            publish(&process, "hostile", &format!("hostile-{count}"));
        }
        publish(&process, "healthy", &format!("healthy-{count}"));
        if count > WARM_UP {
            samples.push(taken(process.id()));
        }
        count += 1;
        thread::sleep(EVERY);
    }
    until("the last ones arrive", || arrivals.lock().unwrap().len() == count * HEALTHY);
    samples.push(taken(process.id()));

    stays_flat(&samples);
    for kind in kinds.iter().flatten() {
        recorded(home.path(), kind);
    }
    // After five refusals in a row a subscription is held.
    let wanted = numbers["redirects"] * count.div_ceil(40).min(5);
    until("five events are sent once to each endpoint that redirects", || {
        let called = redirected.load(Ordering::SeqCst);
        assert!(called <= wanted, "{called} requests instead of {wanted}");
        called == wanted
    });
    over.store(true, Ordering::SeqCst);
    process.kill();
}

#[track_caller]
fn stays_flat(samples: &[(usize, u64)]) {
    let (threads, rss) = samples[0];
    let most_threads = samples.iter().map(|(threads, _)| *threads).max().unwrap();
    let most_rss = samples.iter().map(|(_, rss)| *rss).max().unwrap();
    println!("{threads} to {most_threads} threads, {rss} to {most_rss} KiB");
    assert!(most_threads <= threads, "{threads} threads after the warm-up, then {most_threads}");
    assert!(most_rss < rss + GROWTH_KIB, "{rss} KiB after the warm-up, then {most_rss}");
}

/// Each endpoint of a kind has attempts, each with the class, a reason and no more time than allowed.
fn recorded(home: &Path, kind: &Kind) {
    let conn = file::open(&home.join("data/oncebox.db"));
    let of_kind = format!(
        "FROM attempts AS a JOIN deliveries AS d ON d.seq = a.delivery_seq \
           JOIN subscriptions AS s ON s.seq = d.subscription_seq \
          WHERE s.name GLOB '{}-[0-9]*'",
        kind.name
    );
    let sql = format!(
        "SELECT a.class, coalesce(a.failed_reason, ''), count(*), max(a.latency_ms) {of_kind} GROUP BY 1, 2"
    );
    let lines = file::lines(&conn, &sql);
    println!("{}: {}", kind.name, lines.join(" | "));
    let is_right = |line: &String| line.starts_with(kind.class) && line.contains(kind.reason);
    assert!(lines.iter().any(is_right), "{} was never attempted", kind.name);
    for line in lines {
        // On a busy machine the time may be over before any answer is read.
        let is_late = kind.timeout_ms.is_some() && line.contains("no answer in time");
        // Many new endpoints are called: the first try may be a short one.
        let is_late = is_late || line.contains("a first try of one second");
        assert!(is_right(&line) || is_late, "{}: {line}", kind.name);
        let latency: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        let most = kind.timeout_ms.unwrap_or(30_000) + SLACK_MS;
        assert!(latency < most, "{}: {line}", kind.name);
    }
    if kind.name == "hangs-allowed" {
        let waited = format!("SELECT min(a.latency_ms) >= 10000 {of_kind} AND a.class = 'success'");
        assert_eq!(file::lines(&conn, &waited), ["1"], "a slow answer is waited for");
    }
}
