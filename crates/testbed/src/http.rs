//! Just enough HTTP to feed servers, and to be a server that misbehaves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// Sends one request to loopback; returns status and body.
pub fn request(port: u16, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap();
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, body)
}

/// What a server answered.
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Asks loopback with headers of one's own; the answer comes as it is.
pub fn get(port: u16, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    // HTTP/1.0, so that nothing comes in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n{headers}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let headers = String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase();
    let status = headers.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap();
    Answer { status, headers, body: answer[end + 4..].to_vec() }
}

/// What a server that misbehaves does with each request.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Answers with this status and body.
    Answer { status: &'static str, body: String },
    /// Announces the whole body, sends half of it, and hangs up.
    HalfABody { body: String },
    /// Accepts, and never answers.
    Silence,
}

/// A server on loopback with a given behaviour, until it is dropped.
pub struct StrangeServer {
    pub port: u16,
    thread: Option<JoinHandle<()>>,
}

impl StrangeServer {
    pub fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut first = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                if reader.read_line(&mut first).unwrap_or(0) == 0 || first.starts_with("STOP") {
                    return;
                }
                let mut line = String::new();
                while reader.read_line(&mut line).unwrap_or(0) > 2 {
                    line.clear();
                }
                match &behaviour {
                    Behaviour::Answer { status, body } => {
                        let length = body.len();
                        let _ = write!(
                            stream,
                            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                        );
                    }
                    Behaviour::HalfABody { body } => {
                        let (half, length) = (&body[..body.len() / 2], body.len());
                        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{half}");
                    }
                    Behaviour::Silence => silent.push(stream),
                }
            }
        });
        Self { port, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for StrangeServer {
    fn drop(&mut self) {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.write_all(b"STOP\r\n");
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
