//! Who comes in, and whose settings are whose.

use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{Action, FlightDescriptor};
use futures::TryStreamExt;
use kelpie_server::{Server, ServerError, ServerOptions, Tls};
use rcgen::{CertificateParams, Issuer, KeyPair};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Request};

use crate::setup::{Client, Fixture, fails, fixture, query};

const BATCH_SIZE: &str =
    "SELECT value FROM information_schema.df_settings WHERE name = 'datafusion.execution.batch_size'";

async fn secured() -> Fixture {
    fixture(|options| {
        options.credentials.add_tokens("s3cret").unwrap();
        options.credentials.add_users("ann:pass:word\nöl:x").unwrap();
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_with_a_secret_come_in() {
    let fixture = secured().await;
    let mut client = fixture.client().await;
    fails(query(&mut client, "SELECT 1").await, Code::Unauthenticated, "wants a token");
    for wrong in ["s3cre", "S3CRET", "", "s3cret2"] {
        client.set_token(wrong.into());
        fails(query(&mut client, "SELECT 1").await, Code::Unauthenticated, "not known");
    }
    client.set_token("s3cret".into());
    assert_eq!(query(&mut client, "SELECT 1").await.unwrap(), ["1"]);

    for (name, password) in [("ann", "wrong"), ("nobody", "x"), ("", ""), ("ann", "")] {
        assert!(fixture.client().await.handshake(name, password).await.is_err(), "{name}");
    }
    for (name, password) in [("ann", "pass:word"), ("öl", "x")] {
        let mut client = fixture.client().await;
        client.handshake(name, password).await.unwrap();
        assert_eq!(client.token().unwrap().len(), 32);
        assert_eq!(query(&mut client, "SELECT 1").await.unwrap(), ["1"]);
    }
    // Each call is asked, not queries alone.
    let mut client = fixture.client().await;
    let client = client.inner_mut();
    let action = Action { r#type: "GetSessionOptions".into(), body: Vec::new().into() };
    assert_eq!(client.do_action(Request::new(action)).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(
        client.list_actions(Request::new(Default::default())).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    let ticket = Request::new(Default::default());
    assert_eq!(client.do_get(ticket).await.unwrap_err().code(), Code::Unauthenticated);
    let descriptor = Request::new(FlightDescriptor::new_cmd(vec![]));
    assert_eq!(client.get_schema(descriptor).await.unwrap_err().code(), Code::Unauthenticated);
    let put = client.do_put(Request::new(futures::stream::empty())).await;
    assert_eq!(put.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_the_session_s_own() {
    let fixture = fixture(|_| {}).await;
    let (mut one, mut other) = (fixture.client().await, fixture.client().await);
    one.execute_update("SET datafusion.execution.batch_size = 77".into(), None).await.unwrap();
    assert_eq!(query(&mut one, BATCH_SIZE).await.unwrap(), ["77"]);
    assert_eq!(query(&mut other, BATCH_SIZE).await.unwrap(), ["8192"]);
    // By a query too, as drivers do that do not know better.
    assert!(query(&mut other, "SET datafusion.execution.batch_size = 99").await.unwrap().is_empty());
    assert_eq!(query(&mut other, BATCH_SIZE).await.unwrap(), ["99"]);
    assert_eq!(query(&mut one, BATCH_SIZE).await.unwrap(), ["77"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_found_again_by_its_token_or_its_cookie() {
    let fixture = secured().await;
    let mut client = fixture.client().await;
    client.handshake("ann", "pass:word").await.unwrap();
    client.execute_update("SET datafusion.execution.batch_size = 77".into(), None).await.unwrap();
    let token = client.token().unwrap().clone();
    drop(client);
    let mut again = fixture.client().await;
    again.set_token(token);
    assert_eq!(query(&mut again, BATCH_SIZE).await.unwrap(), ["77"]);

    let mut first = fixture.client().await;
    let mut asking = Request::new(Action { r#type: "GetSessionOptions".into(), body: Vec::new().into() });
    asking.metadata_mut().insert("authorization", "Bearer s3cret".parse().unwrap());
    let answer = first.inner_mut().do_action(asking).await.unwrap();
    let cookie = answer.metadata().get("set-cookie").unwrap().to_str().unwrap().to_string();
    let cookie = cookie.split(';').next().unwrap().to_string();
    assert!(cookie.starts_with("arrow_flight_session_id="), "{cookie}");
    answer.into_inner().try_collect::<Vec<_>>().await.unwrap();
    let with_cookie = async |cookie: &str, token: &str| {
        let mut client = fixture.client().await;
        client.set_token(token.into());
        client.set_header("cookie", format!("a=b; {cookie}"));
        client
    };
    let mut second = with_cookie(&cookie, "s3cret").await;
    second.execute_update("SET datafusion.execution.batch_size = 55".into(), None).await.unwrap();
    let mut third = with_cookie(&cookie, "s3cret").await;
    assert_eq!(query(&mut third, BATCH_SIZE).await.unwrap(), ["55"]);
    // A cookie is no secret of its own, and of no use to others.
    fails(
        query(&mut with_cookie(&cookie, "wrong").await, "SELECT 1").await,
        Code::Unauthenticated,
        "not known",
    );
    let mut ann = fixture.client().await;
    for header in ["Basic YW5uOnBhc3M6d29yZA==", "basic YW5uOnBhc3M6d29yZA"] {
        ann.set_header("authorization", header);
        assert_eq!(query(&mut ann, "SELECT 1").await.unwrap(), ["1"], "{header}");
    }
    ann.set_header("cookie", cookie.clone());
    fails(query(&mut ann, "SELECT 1").await, Code::Unauthenticated, "session has ended");

    close(&mut third).await;
    fails(query(&mut second, "SELECT 1").await, Code::Unauthenticated, "session has ended");
}

async fn close(client: &mut Client) {
    let action = Action { r#type: "CloseSession".into(), body: Vec::new().into() };
    let answer: Vec<_> = client.do_action(action).await.unwrap().try_collect().await.unwrap();
    // `CLOSED`.
    assert_eq!(answer[0].body.as_ref(), [8, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_closed_has_lost_its_settings() {
    let fixture = fixture(|_| {}).await;
    let mut client = fixture.client().await;
    client.execute_update("SET datafusion.execution.batch_size = 77".into(), None).await.unwrap();
    let info = client.execute("SELECT 1".into(), None).await.unwrap();
    close(&mut client).await;
    assert_eq!(query(&mut client, BATCH_SIZE).await.unwrap(), ["8192"]);
    fails(crate::setup::rows_of(&mut client, &info).await, Code::NotFound, "ticket");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_machines_need_secrets_and_tls() {
    let options = |listen: &str| ServerOptions {
        listen: listen.parse().unwrap(),
        log: false,
        ..ServerOptions::default()
    };
    let refused = Server::start(options("0.0.0.0:0")).await;
    assert!(matches!(refused, Err(ServerError::Exposed(_))), "{refused:?}");
    let mut secured = options("[::]:0");
    secured.credentials.add_tokens("x").unwrap();
    assert!(matches!(Server::start(secured).await, Err(ServerError::Exposed(_))));
    assert!(Server::start(ServerOptions { insecure: true, ..options("0.0.0.0:0") }).await.is_ok());
    let bad = Tls { certificate: b"no".to_vec(), key: b"no".to_vec(), client_authority: None };
    let bad = Server::start(ServerOptions { tls: Some(bad), ..options("127.0.0.1:0") }).await;
    assert!(bad.unwrap_err().to_string().contains("certificate"));
    let taken = Server::start(options("127.0.0.1:0")).await.unwrap();
    let twice = Server::start(options(&taken.address().to_string())).await;
    assert!(twice.unwrap_err().to_string().contains(&format!("cannot listen on {}", taken.address())));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_may_be_encrypted_and_clients_have_certificates() {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let issued = || {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&key, &issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let ((certificate, key), client) = (issued(), issued());
    let fixture = fixture(|options| {
        options.tls = Some(Tls {
            certificate: certificate.into_bytes(),
            key: key.into_bytes(),
            client_authority: Some(authority_certificate.pem().into_bytes()),
        });
    })
    .await;
    let address = format!("https://localhost:{}", fixture.server.address().port());
    let trusting = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority_certificate.pem()));
    let connect = async |tls: ClientTlsConfig| {
        let endpoint = Channel::from_shared(address.clone()).unwrap().tls_config(tls).unwrap();
        let mut client = FlightSqlServiceClient::new(endpoint.connect_lazy());
        query(&mut client, "SELECT 1").await
    };
    let known = trusting.clone().identity(Identity::from_pem(client.0, client.1));
    assert_eq!(connect(known).await.unwrap(), ["1"]);
    assert!(connect(trusting).await.is_err());
    assert!(connect(ClientTlsConfig::new()).await.is_err());
    // One that speaks no TLS keeps nobody from the server.
    let mut plain = Channel::from_shared(address.replace("https", "http")).unwrap();
    plain = plain.connect_timeout(std::time::Duration::from_secs(2));
    let mut plain = FlightSqlServiceClient::new(plain.connect_lazy());
    assert!(query(&mut plain, "SELECT 1").await.is_err());
}
