//! What goes wrong, as a client and as the owner of the server see it.

use std::net::SocketAddr;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use kelpie_session::{Refused, message};
use tonic::{Code, Status};

/// Bytes of an error that are sent: clients refuse headers of more than 8 to 16 kB.
const MOST_BYTES: usize = 3000;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Clients on other machines could connect without a secret, or their secrets would be read on the way.
    #[error(
        "{0} can be reached from other machines: clients need tokens or passwords, and TLS so that nobody reads them on the way"
    )]
    Exposed(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot use the certificate and its key: {0}")]
    Tls(String),
    /// The settings or the data are wrong.
    #[error("{}", message(.0))]
    Session(#[from] DataFusionError),
    /// No threads can be started.
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
}

/// An error of a statement as one of gRPC.
pub fn of_query(error: &DataFusionError) -> Status {
    let text = message(error);
    let code = code(error, &text);
    Status::new(code, shortened(text))
}

/// An error of Arrow in what a client has sent.
pub fn of_input(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(shortened(format!("the message is not understood: {error}")))
}

fn code(error: &DataFusionError, text: &str) -> Code {
    if Refused::is(error) {
        return Code::PermissionDenied;
    }
    match error.find_root() {
        DataFusionError::SQL(..)
        | DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::Configuration(_) => Code::InvalidArgument,
        DataFusionError::NotImplemented(_) => Code::Unimplemented,
        DataFusionError::ResourcesExhausted(_) => Code::ResourceExhausted,
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            ArrowError::NotYetImplemented(_) => Code::Unimplemented,
            ArrowError::ParseError(_)
            | ArrowError::CastError(_)
            | ArrowError::ComputeError(_)
            | ArrowError::DivideByZero
            | ArrowError::ArithmeticOverflow(_)
            | ArrowError::InvalidArgumentError(_) => Code::InvalidArgument,
            _ => Code::Internal,
        },
        DataFusionError::Execution(_) if text.contains("longer than kelpie.timeout allows") => {
            Code::DeadlineExceeded
        }
        // Values that do not fit, and files that cannot be read.
        DataFusionError::Execution(_) => Code::FailedPrecondition,
        _ => Code::Internal,
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MOST_BYTES {
        let mut end = MOST_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_code_of_their_kind() {
        let code = |error: DataFusionError| of_query(&error).code();
        assert_eq!(code(DataFusionError::Plan("no such table".into())), Code::InvalidArgument);
        assert_eq!(code(DataFusionError::NotImplemented("x".into())), Code::Unimplemented);
        let late = "the statement was cancelled: it took longer than kelpie.timeout allows, which is 1s";
        assert_eq!(code(DataFusionError::Execution(late.into())), Code::DeadlineExceeded);
        assert_eq!(code(DataFusionError::ResourcesExhausted("memory".into())), Code::ResourceExhausted);
        let divided = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        assert_eq!(code(divided), Code::InvalidArgument);
    }

    #[test]
    fn long_errors_are_cut_between_letters() {
        let status = of_query(&DataFusionError::Plan("ä".repeat(MOST_BYTES)));
        assert!(status.message().len() <= MOST_BYTES + 3 && status.message().ends_with("ä…"));
    }
}
