//! What a command gives away, writes and waits for: secrets, modes of files, signals, documents of others.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{import_small, refused, run, stdout_of, tracewise, without_settings};

/// A server that refuses one request, and gives what it was sent.
fn refusing_server() -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let request = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        connection.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").unwrap();
        String::from_utf8(request).unwrap().to_lowercase()
    });
    (url, request)
}

fn secret_file(folder: &Path) -> PathBuf {
    let path = folder.join("secret");
    std::fs::write(&path, "open-sesame\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn passwords_and_tokens_come_from_files_and_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let secret = secret_file(folder.path());
    let basic = "basic bwu6b3blbi1zzxnhbwu=";
    let by_file = ["--user", "me", "--password-file", secret.to_str().unwrap()];
    let by_token_file = ["--bearer-token-file", secret.to_str().unwrap()];
    let cases: [(&[&str], Option<&str>, &str); 4] = [
        (&by_file, None, basic),
        (&["--user", "me"], Some("TRACEWISE_PASSWORD"), basic),
        (&by_token_file, None, "bearer open-sesame"),
        (&[], Some("TRACEWISE_BEARER_TOKEN"), "bearer open-sesame"),
    ];
    for (arguments, variable, expected) in cases {
        let (url, request) = refusing_server();
        let mut import = tracewise();
        import.args(["archive", "import", "--agent", &url, "--into"]).arg(folder.path().join("a"));
        let variables = variable.map(|name| (name, "open-sesame"));
        let error = refused(import.args(arguments).envs(variables));
        assert!(error.contains("401") && !error.contains("sesame"), "{error}");
        let request = request.join().unwrap();
        assert!(request.contains(&format!("authorization: {expected}\r\n")), "{request}");
    }
}

#[test]
fn a_secret_that_everyone_can_read_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let secret = secret_file(folder.path());
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (url, request) = refusing_server();
    let mut import = tracewise();
    import.args(["archive", "import", "--agent", &url, "--bearer-token-file"]).arg(&secret);
    let output = run(import.arg("--into").arg(folder.path().join("a")));
    request.join().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("everyone on this machine can read this secret"), "{stderr}");
}

#[test]
fn credentials_are_not_sent_to_another_machine_without_tls() {
    let folder = tempfile::tempdir().unwrap();
    // Addresses for documentation, where nothing answers.
    for url in ["http://me:secret@192.0.2.1:9742", "http://192.0.2.1:9742"] {
        let mut import = tracewise();
        import.args(["archive", "import", "--agent", url, "--into"]).arg(folder.path().join("a"));
        let error = refused(import.env("TRACEWISE_BEARER_TOKEN", "t0ken").args(["--timeout", "1s"]));
        assert!(error.contains("credentials are sent only over https:// or to this machine"), "{error}");
        assert!(!error.contains("secret") && !error.contains("t0ken"), "{error}");
        let error = refused(import.arg("--allow-http"));
        assert!(!error.contains("credentials are sent only"), "{error}");
    }
}

#[test]
fn a_configuration_that_lies_in_the_current_directory_cannot_name_a_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let list = || {
        let mut list = tracewise();
        list.current_dir(folder.path()).args(["archive", "list", "--data", "s3://bucket/traces"]);
        list.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        list.env("AWS_SESSION_TOKEN", "token");
        list
    };
    let file = folder.path().join("tracewise.toml");
    for text in [format!("[archive.s3]\nendpoint = {endpoint:?}"), "[archive]\naddress = 's3://b/c'".into()] {
        std::fs::write(&file, text).unwrap();
        let error = refused(&mut list());
        assert!(error.contains("pass --config tracewise.toml"), "{error}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a request was sent");
    // Who names the file trusts it, but not with keys in clear text on the network.
    std::fs::write(&file, "[archive.s3]\nendpoint = 'http://192.0.2.1:9000'").unwrap();
    let error = refused(list().args(["--config", "tracewise.toml"]));
    assert!(error.contains("use https://, or set allow_http = true"), "{error}");
    // Other settings are taken from it.
    std::fs::write(&file, "[record]\ninterval = '7s'").unwrap();
    let shown = stdout_of(tracewise().current_dir(folder.path()).args(["config", "show"]));
    assert!(shown.contains("interval = \"7s\""), "{shown}");
}

/// A command that waits in a system call for somebody to write to a pipe.
fn waiting_for_a_pipe(folder: &Path) -> Child {
    let pipe = folder.join("log.swf");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut train = tracewise();
    train.args(["jobs", "train", "--preset", "swf", "--input"]).arg(&pipe).arg("--out").arg(folder.join("m"));
    let child = train.stderr(Stdio::null()).spawn().unwrap();
    let name = format!("/proc/{}/task", child.id());
    testbed::eventually("the thread that waits for signals", || {
        let threads = std::fs::read_dir(&name).ok()?;
        let is_signals = |thread: PathBuf| {
            std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "signals")
        };
        threads.flatten().any(|thread| is_signals(thread.path())).then_some(())
    });
    child
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_signal_ends_a_command_that_cannot_look_at_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = waiting_for_a_pipe(folder.path());
    let asked = Instant::now();
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
}

#[test]
fn a_second_signal_ends_a_command_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = waiting_for_a_pipe(folder.path());
    let asked = Instant::now();
    signal(&child, "-TERM");
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
}

#[test]
fn what_is_written_is_for_its_owner_and_group() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    import_small(&archive);
    let out = folder.path().join("rates.csv");
    let program = env!("CARGO_BIN_EXE_tracewise");
    let export = r#"umask 0; exec "$0" archive export --data "$1" --out "$2""#;
    stdout_of(without_settings("sh").args(["-c", export, program]).arg(&archive).arg(&out));
    let mode = std::fs::metadata(&out).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "{mode:o}");
}

#[test]
fn documents_are_bounded_and_the_error_names_the_setting() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, large) = (folder.path().join("a"), folder.path().join("large"));
    import_small(&archive);
    std::fs::write(&large, vec![b'#'; 2 << 20]).unwrap();
    let cases: [&[&str]; 5] = [
        &["campaign", "run"],
        &["campaign", "simulate", "--hours", "1", "--into", "b", "--model"],
        &["campaign", "label", "add", "--data", archive.to_str().unwrap(), "--labels"],
        &["archive", "import", "a/archive.json", "--into", "b", "--columns"],
        &["jobs", "inspect", "--preset", "csv", "--input", "x.csv", "--schema"],
    ];
    for arguments in cases {
        let mut command = tracewise();
        command.current_dir(folder.path()).env("TRACEWISE_LIMITS_DOCUMENT_BYTES", "1MiB");
        let error = refused(command.args(arguments).arg(&large));
        assert!(error.contains("limits.document_bytes"), "{arguments:?}: {error}");
    }
}

#[test]
fn a_label_file_cannot_do_harm() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, file) = (folder.path().join("a"), folder.path().join("labels.csv"));
    import_small(&archive);
    let add = || {
        let mut add = tracewise();
        add.args(["campaign", "label", "add", "--data"]).arg(&archive).arg("--labels").arg(&file);
        add
    };
    let columns = vec!["job"; 100_000].join(",");
    let cases: [&[u8]; 9] = [
        b"",
        b"job,kind,set\n",
        b"job,kind,set\n\"4711,np,train\n",
        b"job,kind,set\n4711,np,everything\n",
        b"job,kind,set\n\xff\xfe,np,train\n",
        b"job,kind,set\n4711\0,np,train\n",
        b"job,kind,set\n../../../etc/passwd,np,train\n",
        b"job,kind,set,extra\n4711,np,train,1\n",
        columns.as_bytes(),
    ];
    for text in cases {
        std::fs::write(&file, text).unwrap();
        refused(&mut add());
    }
    let labels = stdout_of(tracewise().args(["campaign", "label", "list", "--json", "--data"]).arg(&archive));
    assert_eq!(labels.trim(), "[]");
}

#[test]
fn root_does_not_write_to_a_directory_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return testbed::skip("only root is refused");
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let archive = data.join("archive");
    std::fs::create_dir(&data).unwrap();
    import_small(&archive);
    let give_to = |user: u32| {
        for path in [&data, &archive] {
            std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
        }
    };
    let with = |arguments: &[&str], flag: &str, path: &Path| {
        let mut command = tracewise();
        command.args(arguments).arg(flag).arg(path);
        command
    };
    let writers = || {
        [
            with(&["archive", "compact"], "--data", &archive),
            with(&["record", "--duration", "2s"], "--into", &archive),
            with(&["token", "add", "name"], "--data", &data),
            with(&["learn", "tonight"], "--data", &data),
            with(&["serve", "--listen", "127.0.0.1:0"], "--data", &data),
        ]
    };
    give_to(65_534);
    for mut command in writers() {
        let said = refused(&mut command);
        assert!(said.contains("run it as that user: sudo -u nobody tracewise"), "{command:?}: {said}");
    }
    assert!(!data.join("metadata.db").exists());
    stdout_of(&mut with(&["archive", "list"], "--data", &archive));
    give_to(0);
    for mut command in writers().into_iter().take(3) {
        stdout_of(&mut command);
    }
}

#[test]
fn the_first_token_is_made_once_and_only_its_owner_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admin.token");
    let add = || {
        let mut command = tracewise();
        command.args(["token", "add", "--role", "admin", "first", "--data"]).arg(folder.path());
        command.arg("--initial").arg(&file);
        command
    };
    assert_eq!(stdout_of(&mut add()), "", "the token is only in the file");
    let secret = std::fs::read_to_string(&file).unwrap();
    assert!(secret.starts_with("tw_"), "{secret}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    stdout_of(&mut add());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), secret, "it is kept");
    let list = || stdout_of(tracewise().args(["token", "list", "--data"]).arg(folder.path()));
    assert_eq!(list().lines().count(), 2, "{}", list());
    // Who logs in elsewhere needs no token.
    let other = folder.path().join("other");
    let mut command = tracewise();
    command
        .args(["token", "add", "--role", "admin", "first", "--data"])
        .arg(&other)
        .arg("--initial")
        .arg(&file);
    let config = folder.path().join("tracewise.toml");
    std::fs::write(&config, "[serve.login]\nproxy_header = 'x-user'\nproxies = ['127.0.0.1']\n").unwrap();
    stdout_of(command.arg("--config").arg(&config));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), secret);
}
