//! Each rule about who may ask, attacked.

use crate::client::Running;
use crate::made::made;
use dioptra_web::WebOptions;
use std::net::{Ipv4Addr, TcpStream};

#[test]
fn answers_demand_the_token_and_say_how_to_get_it() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let wrong = "0".repeat(32);
    for headers in [
        vec![],
        vec!["X-Dioptra-Token:".to_owned()],
        vec![format!("X-Dioptra-Token: {wrong}")],
        vec![format!("X-Dioptra-Token: {}", &web.token[..31])],
        vec![format!("X-Dioptra-Token: {}0", web.token)],
        vec![format!(
            "X-Dioptra-Token: {}",
            web.token.to_uppercase() + "x"
        )],
        vec![web.token_line(), format!("X-Dioptra-Token: {wrong}")],
        vec![format!("Cookie: token={}", web.token)],
        vec![format!("Authorization: Bearer {}", web.token)],
    ] {
        for path in [
            "status",
            "profile",
            "table",
            "flame",
            "export?format=csv",
            "nothing",
        ] {
            let response = web.request("GET", &format!("/api/{path}"), &headers);
            assert_eq!(
                (response.status, response.code().as_str()),
                (401, "no_token"),
                "{headers:?}"
            );
            assert!(response.json()["error"]["remedy"].is_string());
        }
    }
    let in_query = format!("/api/status?token={}", web.token);
    assert_eq!(web.request("GET", &in_query, &[]).status, 401);
    assert_eq!(web.get("/api/status").status, 200);
}

#[test]
fn other_hosts_names_are_refused() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let port = web.port;
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost.evil.example:{port}"),
        "127.0.0.1".to_owned(),
        "127.0.0.1:1".to_owned(),
        format!("192.0.2.1:{port}"),
        format!("[::ffff:127.0.0.1.evil]:{port}"),
        String::new(),
    ] {
        for path in ["/", "/page.js", "/api/status"] {
            let headers = [format!("Host: {host}"), web.token_line()];
            let response = web.request("GET", path, &headers);
            // Text that is no host at all is refused before it comes to the rule.
            let is_refused = response.status == 400 || response.code() == "wrong_host";
            assert!(
                is_refused && response.status >= 400,
                "{host}: {}",
                response.head
            );
        }
    }
    let response = web.request(
        "GET",
        "/api/status",
        &[format!("Host: localhost:{port}"), web.token_line()],
    );
    assert_eq!(response.status, 200);
    // The whole address in the first line has no effect on the rule.
    let absolute = format!(
        "GET http://evil.example/api/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n{}\r\n\r\n",
        web.token_line()
    );
    assert_eq!(web.raw(&absolute).status, 403);
    let without = format!("GET /api/status HTTP/1.0\r\n{}\r\n\r\n", web.token_line());
    assert_eq!(web.raw(&without).status, 403);
}

#[test]
fn other_pages_are_refused() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let port = web.port;
    for line in [
        "Origin: http://evil.example".to_owned(),
        "Origin: null".to_owned(),
        format!("Origin: https://127.0.0.1:{port}"),
        format!("Origin: http://localhost:{port}"),
        "Origin: http://127.0.0.1:1".to_owned(),
        format!("Origin: http://127.0.0.1:{port}.evil.example"),
        "Sec-Fetch-Site: cross-site".to_owned(),
        "Sec-Fetch-Site: same-site".to_owned(),
    ] {
        for path in ["/", "/page.js", "/api/table"] {
            let response = web.request("GET", path, &[line.clone(), web.token_line()]);
            assert_eq!(
                (response.status, response.code().as_str()),
                (403, "wrong_origin"),
                "{line}"
            );
        }
    }
    let own = format!("Origin: http://127.0.0.1:{port}");
    assert_eq!(
        web.request("GET", "/api/table", &[own, web.token_line()])
            .status,
        200
    );
}

#[test]
fn nothing_is_changed_by_requests() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "GETS"] {
        for path in ["/", "/api/status"] {
            let response = web.request(method, path, &[web.token_line()]);
            assert_eq!(response.status, 405, "{method}");
        }
    }
    let head = web.request("HEAD", "/api/status", &[web.token_line()]);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn every_response_forbids_what_the_page_does_not_need() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let policy = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; \
                  img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
                  form-action 'none'\r\n";
    for path in [
        "/",
        "/page.js",
        "/api/status",
        "/api/nothing",
        "/nothing",
        "/api/table?by=x",
    ] {
        let head = web.get(path).head + "\r\n";
        for line in [
            policy,
            "x-content-type-options: nosniff\r\n",
            "referrer-policy: no-referrer\r\n",
            "x-frame-options: DENY\r\n",
            "cross-origin-resource-policy: same-origin\r\n",
            "cache-control: no-store\r\n",
        ] {
            assert!(head.contains(line), "{path}: {line} is missing:\n{head}");
        }
        assert!(!head.contains("access-control-allow"), "{head}");
        assert!(!head.contains("set-cookie"), "{head}");
    }
    let page = web.request("GET", "/", &[]);
    assert!(
        page.head.contains("content-type: text/html; charset=utf-8"),
        "{}",
        page.head
    );
}

#[test]
fn no_address_leads_to_files() {
    let made = made();
    std::fs::write(made.folder.path().join("secret"), "secret").expect("a file");
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let secret = made.folder.path().join("secret");
    let secret = secret.to_str().expect("a path");
    for path in [
        "/../Cargo.toml",
        "/assets/../../Cargo.toml",
        "/%2e%2e/Cargo.toml",
        "/..%2fCargo.toml",
        "//etc/passwd",
        "/etc/passwd",
        "/page.js/../../src/lib.rs",
        "/page.js%00",
        "/index.html.",
        secret,
    ] {
        let response = web.get(path);
        assert_eq!(
            (response.status, response.code().as_str()),
            (404, "no_such_endpoint"),
            "{path}"
        );
    }
    for file in [
        secret,
        "../secret",
        "/etc/passwd",
        "0",
        "",
        "0000000000000000",
        "%2e%2e%2fsecret",
    ] {
        let response = web.get(&format!("/api/source?file={file}"));
        assert_eq!(
            (response.status, response.code().as_str()),
            (404, "no_such_file"),
            "{file}"
        );
    }
}

#[test]
fn unknown_and_malformed_keys_are_errors() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    for (path, status, code) in [
        ("nothing", 404, "no_such_endpoint"),
        ("table/", 404, "no_such_endpoint"),
        ("profile?profile=1", 404, "no_such_profile"),
        ("profile?profile=-1", 400, "bad_parameter"),
        ("table?x=1", 400, "bad_parameter"),
        ("table?by=nothing", 400, "bad_parameter"),
        ("table?by=function&by=module", 400, "bad_parameter"),
        ("table?filter=%28&regex=1", 400, "bad_pattern"),
        ("table?sort=nothing", 404, "no_such_column"),
        ("table?below=4294967295", 404, "no_such_row"),
        ("table?event=nothing", 404, "no_such_event"),
        ("table?process=7", 404, "no_such_process"),
        ("table?thread=42.99", 404, "no_such_thread"),
        ("table?program=x", 404, "no_such_program"),
        ("table?module=..%2f", 404, "no_such_module"),
        ("table?function=x@", 404, "no_such_function"),
        ("table?through=%00", 404, "no_such_function"),
        ("table?time=5", 400, "bad_parameter"),
        ("table?cpu=a", 400, "bad_parameter"),
        ("table?generation=7", 409, "stale"),
        ("table?slices=0&by=time", 400, "bad_parameter"),
        ("flame?root=4294967295", 404, "no_such_row"),
        ("flame?focus=x", 404, "no_such_function"),
        ("flame?direction=up", 400, "bad_parameter"),
        ("function", 400, "bad_parameter"),
        ("function?function=m00@0", 404, "no_such_function"),
        ("timeline?bins=0", 400, "bad_parameter"),
        ("timeline?bins=100000", 400, "bad_parameter"),
        ("timeline?span=9..3", 400, "bad_parameter"),
        ("search", 400, "bad_parameter"),
        ("export?format=exe", 400, "bad_parameter"),
    ] {
        let response = web.get(&format!("/api/{path}"));
        assert_eq!(
            (response.status, response.code().as_str()),
            (status, code),
            "{path}"
        );
    }
}

#[test]
fn long_and_broken_requests_do_no_harm() {
    let made = made();
    let web = Running::start(&[&made.file], Some(made.symfs()));
    let long = "a".repeat(50_000);
    let response = web.get(&format!("/api/table?function={long}"));
    assert_eq!(response.code(), "no_such_function");
    assert!(
        response.body.len() < 1000,
        "the key is not repeated in full"
    );
    let endless = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    // Whatever the answer, or none: the server goes on.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| web.raw(&endless)));
    assert_eq!(web.get("/api/status").status, 200);
}

#[test]
fn only_loopback_is_listened_on_and_ports_and_tokens_differ() {
    let made = made();
    let one = Running::start(&[&made.file], Some(made.symfs()));
    let other = Running::start(&[&made.file], Some(made.symfs()));
    assert_ne!(one.port, other.port);
    assert_ne!(one.token, other.token);
    // Another address of this machine: a server for all addresses would answer there.
    assert!(TcpStream::connect((Ipv4Addr::new(127, 0, 0, 2), one.port)).is_err());
    // A token opens its own server only.
    let foreign = [format!("X-Dioptra-Token: {}", other.token)];
    let response = one.request("GET", "/api/status", &foreign);
    assert_eq!(response.code(), "no_token");
}

#[test]
fn a_server_for_other_machines_demands_the_token_too() {
    let made = made();
    let options = WebOptions {
        listen: Ipv4Addr::UNSPECIFIED.into(),
        ..WebOptions::default()
    };
    let web = Running::start_with(&[&made.file], Some(made.symfs()), options);
    assert!(TcpStream::connect((Ipv4Addr::new(127, 0, 0, 2), web.port)).is_ok());
    // Requests under an address of this machine are its own; names may be another's that lead here.
    let host = |name: &str| format!("Host: {name}:{}", web.port);
    let status = |headers: &[String]| web.request("GET", "/api/status", headers).status;
    assert_eq!(status(&[host("192.0.2.7")]), 401);
    assert_eq!(status(&[host("192.0.2.7"), web.token_line()]), 200);
    assert_eq!(status(&[host("evil.example"), web.token_line()]), 403);
    let origin = "Origin: http://evil.example".to_owned();
    assert_eq!(status(&[host("192.0.2.7"), web.token_line(), origin]), 403);
}
