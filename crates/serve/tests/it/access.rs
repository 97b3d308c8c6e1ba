//! Permissions: every route of the document, with no token, a wrong one, and one of every role.

use lifecycle::{NewToken, Role, Store};
use serde_json::Value;
use serve::ServeError;
use serve::http::access::{Access, may, needed};
use testbed::http;
use workload::Timestamp;

use crate::{settings, started};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// The status of a request with some headers.
async fn status(port: u16, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    net::install_tls_provider();
    let client = reqwest::Client::new();
    let mut request = client.request(method.parse().unwrap(), format!("http://127.0.0.1:{port}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_open_to_its_roles_and_to_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut generous = settings(folder.path());
    generous.limits.failed_logins = 10_000;
    let running = started(generous, None).await;
    let port = running.address.port();
    let document: Value = serde_json::from_str(&serve::http::openapi()).unwrap();
    let store = Store::open_file(&settings(folder.path()).data.join("metadata.db")).await.unwrap();
    let mut tokens = Vec::new();
    for role in Role::ALL {
        let new = NewToken { name: role.to_string(), role, nodes: Vec::new() };
        tokens.push((role, store.add_token(&new, "test", NOW).await.unwrap().1));
    }
    let mut routes: Vec<(String, String)> =
        [("GET", "/metrics"), ("GET", "/status"), ("POST", "/api/v1/write")]
            .map(|(method, path)| (method.into(), path.into()))
            .into();
    for (path, item) in document["paths"].as_object().unwrap() {
        routes.extend(item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
    }
    assert!(routes.len() > 10);
    for (method, path) in routes {
        let access = needed(&method.parse().unwrap(), &path).unwrap();
        let Access::Role(needed) = access else { continue };
        // The stream does not end by itself, and its headers are enough.
        let path = path
            .replace("{node}", "n1")
            .replace("{job}", "1")
            .replace("{id}", "1")
            .replace("{name}", "missing")
            .replace("{number}", "999");
        let wrong = format!("Bearer {}", lifecycle::Secret::random().unwrap().reveal());
        assert_eq!(status(port, &method, &path, &[]).await, 401, "{method} {path} without a token");
        assert_eq!(status(port, &method, &path, &[("authorization", &wrong)]).await, 401, "{method} {path}");
        assert_eq!(
            status(port, &method, &path, &[("authorization", "Bearer tw_")]).await,
            401,
            "{method} {path}"
        );
        for (role, secret) in &tokens {
            let sent = format!("Bearer {}", secret.reveal());
            let found = status(port, &method, &path, &[("authorization", &sent)]).await;
            if may(*role, needed) {
                assert!(
                    matches!(found, 200 | 202 | 400 | 404 | 409 | 415 | 422),
                    "{method} {path} as {role}: {found}"
                );
            } else {
                assert_eq!(found, 403, "{method} {path} as {role}");
            }
        }
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_cancels_its_own_operations_only() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let store = Store::open_file(&settings(folder.path()).data.join("metadata.db")).await.unwrap();
    let mut bearers = Vec::new();
    for (name, role) in [("ann", Role::Viewer), ("bob", Role::Viewer), ("cid", Role::Vetter)] {
        let new = NewToken { name: name.into(), role, nodes: Vec::new() };
        bearers.push(store.add_token(&new, "test", NOW).await.unwrap().1.reveal().to_owned());
    }
    let [ann, bob, cid] = &bearers[..] else { panic!("three tokens") };
    net::install_tls_provider();
    let client = reqwest::Client::new();
    let request = |method: &str, path: &str, bearer: &String| {
        let url = format!("http://{}/api/v1/{path}", running.address);
        client.request(method.parse().unwrap(), url).bearer_auth(bearer)
    };
    let stored =
        request("PUT", "job-traces/a.csv", cid).body(crate::stored::trace(100)).send().await.unwrap();
    assert_eq!(stored.status().as_u16(), 201);
    let comparison = request("POST", "job-traces/a.csv/comparison", ann)
        .header("content-type", "application/json")
        .body(r#"{"with":"a.csv"}"#);
    let started = comparison.send().await.unwrap();
    assert_eq!(started.status().as_u16(), 202);
    let started: Value = serde_json::from_str(&started.text().await.unwrap()).unwrap();
    let place = format!("operations/{}", started["number"]);
    for (bearer, expected) in [(bob, 403), (ann, 204), (cid, 204)] {
        let answer = request("DELETE", &place, bearer).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), expected);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_only_this_machine_is_served_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let port = running.address.port();
    assert_eq!(status(port, "GET", "/api/v1/nodes", &[]).await, 200);
    for (name, value) in
        [("host", "evil.example"), ("sec-fetch-site", "cross-site"), ("authorization", "Basic YTpi")]
    {
        assert_eq!(status(port, "GET", "/api/v1/nodes", &[(name, value)]).await, 401, "{name}: {value}");
    }
    let answer = tokio::task::spawn_blocking(move || http::get(port, "/", &[])).await.unwrap();
    for header in ["content-security-policy", "x-content-type-options: nosniff", "x-frame-options: deny"] {
        assert!(answer.headers.contains(header), "{}", answer.headers);
    }
    running.stop().await;
    let open = serve::ServeSettings { listen: "0.0.0.0:0".parse().unwrap(), ..settings(folder.path()) };
    let refused = serve::start(open, detect::DetectorConfig::default(), None).await;
    assert!(matches!(refused, Err(ServeError::NoTokens(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_logs_in_with_a_token_and_out_again() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let port = running.address.port();
    let store = Store::open_file(&settings(folder.path()).data.join("metadata.db")).await.unwrap();
    let new = NewToken { name: "ann".into(), role: Role::Viewer, nodes: Vec::new() };
    let (_, secret) = store.add_token(&new, "test", NOW).await.unwrap();
    net::install_tls_provider();
    let client = reqwest::Client::new();
    let log_in = async |token: &str| {
        let url = format!("http://127.0.0.1:{port}/api/v1/session");
        let body = serde_json::json!({ "token": token }).to_string();
        client.post(url).header("content-type", "application/json").body(body).send().await.unwrap()
    };
    assert_eq!(log_in("nonsense").await.status(), 401);
    let response = log_in(secret.reveal()).await;
    assert_eq!(response.status(), 204);
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let sent = [("cookie", cookie.as_str())];
    assert_eq!(status(port, "GET", "/api/v1/nodes", &sent).await, 200);
    let foreign = [("cookie", cookie.as_str()), ("sec-fetch-site", "cross-site")];
    assert_eq!(status(port, "GET", "/api/v1/nodes", &foreign).await, 403);
    assert_eq!(status(port, "DELETE", "/api/v1/session", &sent).await, 204);
    assert_eq!(status(port, "GET", "/api/v1/nodes", &sent).await, 401);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_proxy_names_the_user_and_nobody_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut with_proxy = settings(folder.path());
    with_proxy.login.proxy_header = "x-remote-user".into();
    with_proxy.login.proxies = vec!["127.0.0.1".parse().unwrap()];
    with_proxy.login.admins = vec!["ada".into()];
    let running = started(with_proxy.clone(), None).await;
    let port = running.address.port();
    let user = [("x-remote-user", "bob")];
    assert_eq!(status(port, "GET", "/api/v1/nodes", &user).await, 200);
    assert_eq!(status(port, "POST", "/api/v1/write", &user).await, 403, "bob is a viewer");
    assert_eq!(status(port, "POST", "/api/v1/write", &[("x-remote-user", "ada")]).await, 415, "ada may send");
    assert_eq!(
        status(port, "GET", "/api/v1/nodes", &[]).await,
        401,
        "not everybody on this machine any more"
    );
    let twice = [("x-remote-user", "ada"), ("x-remote-user", "bob")];
    assert_eq!(status(port, "GET", "/api/v1/nodes", &twice).await, 401);
    let foreign = [("x-remote-user", "ada"), ("sec-fetch-site", "cross-site")];
    assert_eq!(status(port, "GET", "/api/v1/nodes", &foreign).await, 403);
    // The same header from another address means nothing.
    with_proxy.login.proxies = vec!["192.0.2.1".parse().unwrap()];
    running.reload(with_proxy).unwrap();
    assert_eq!(status(port, "GET", "/api/v1/nodes", &user).await, 401);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_ask_too_often_or_guess_have_to_wait() {
    let folder = tempfile::tempdir().unwrap();
    let mut strict = settings(folder.path());
    strict.limits.requests_per_second = 3;
    strict.limits.failed_logins = 5;
    let running = started(strict, None).await;
    let port = running.address.port();
    let mut found = Vec::new();
    for _ in 0..40 {
        found.push(status(port, "GET", "/healthz", &[]).await);
    }
    assert!(found[..30].iter().all(|status| *status == 200) && found.contains(&429), "{found:?}");
    running.stop().await;

    let mut strict = settings(folder.path());
    strict.limits.failed_logins = 5;
    let running = started(strict, None).await;
    let port = running.address.port();
    let mut found = Vec::new();
    for _ in 0..8 {
        let guess = format!("Bearer {}", lifecycle::Secret::random().unwrap().reveal());
        found.push(status(port, "GET", "/api/v1/nodes", &[("authorization", &guess)]).await);
    }
    assert_eq!(found, [401, 401, 401, 401, 401, 429, 429, 429]);
    running.stop().await;
}

/// Follows the redirects of a login by hand, like a browser. Returns where it ends, and the session.
async fn log_in_through(provider: &testbed::Server, port: u16) -> (u16, Option<String>) {
    net::install_tls_provider();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let header = |response: &reqwest::Response, name: &str| {
        response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    let begun = client.get(format!("http://127.0.0.1:{port}/api/v1/login")).send().await.unwrap();
    assert_eq!(begun.status(), 303);
    let cookie = header(&begun, "set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let to = header(&begun, "location").unwrap();
    assert!(to.starts_with(&provider.url()) && to.contains("code_challenge_method=S256"), "{to}");
    // The form of the provider: who is it?
    let answer = client.post(&to).form(&[("sub", "ada")]).send().await.unwrap();
    let back = header(&answer, "location").unwrap();
    let stolen = client.get(&back).send().await.unwrap();
    assert_eq!(stolen.status(), 401, "another browser cannot end the login");
    let ended = client.get(&back).header("cookie", &cookie).send().await.unwrap();
    let status = ended.status().as_u16();
    let session = header(&ended, "set-cookie").map(|cookie| cookie.split(';').next().unwrap().to_owned());
    (status, session)
}

#[tokio::test(flavor = "multi_thread")]
async fn people_log_in_through_an_openid_provider() {
    let Some(provider) = testbed::openid_provider() else { return };
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "secret\n").unwrap();
    let mut with_provider = settings(folder.path());
    let port = testbed::free_port();
    with_provider.listen.set_port(port);
    with_provider.login.admins = vec!["ada".into()];
    with_provider.login.oidc = Some(serve::OidcSettings {
        issuer: provider.url(),
        client_id: "tracewise".into(),
        client_secret_file: secret,
        external_url: format!("http://127.0.0.1:{port}"),
        user_claim: "sub".into(),
    });
    let running = started(with_provider, None).await;
    assert_eq!(status(port, "GET", "/api/v1/nodes", &[]).await, 401);
    let (ended, session) = log_in_through(&provider, port).await;
    assert_eq!(ended, 303);
    let session = session.unwrap();
    assert_eq!(status(port, "GET", "/api/v1/nodes", &[("cookie", &session)]).await, 200);
    assert_eq!(status(port, "POST", "/api/v1/write", &[("cookie", &session)]).await, 415, "ada is an admin");
    running.stop().await;
}
