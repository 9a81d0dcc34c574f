package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"syscall"

	"github.com/clustermirror/mirror/cluster"
)

// Cause is why a connection or a request failed, decided by the types of the
// errors underneath and never by their text.
type Cause uint8

const (
	Unknown     Cause = iota // none of the below; the connection is taken as lost
	DNS                      // the name has no address, or the resolver did not answer
	Refused                  // nobody listens there
	Network                  // no route, host down, or another error of the network
	Timeout                  // a deadline passed: of the dial, or of a request
	TLS                      // the handshake failed on our side: untrusted or wrong certificate, or no TLS at all
	TLSRefused               // the broker sent an alert about who we are (certificate missing, untrusted, expired)
	SASL                     // the broker refused the mechanism or the credentials
	Closed                   // the other side closed or reset the connection, also in the middle of a frame
	Local                    // closed by us: Close was called
	Protocol                 // bytes that are not the answer we wait for, or a frame above MaxFrame
	Unsupported              // the broker offers no version of the request that we know
	Canceled                 // the caller's context ended first
)

var causeNames = [...]string{"unknown", "dns", "refused", "network", "timeout", "tls", "tls refused", "sasl",
	"closed", "closed here", "protocol", "unsupported", "canceled"}

func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

// Error is a failure of a connection or of a request on it. An error code that a
// broker answered is a Code and not an Error.
//
// errors.Is matches Err and, of the sentinels of package cluster:
// ErrUnknownOutcome when Sent; otherwise ErrUnreachable when the connection is
// missing or lost; ErrTimeout for Timeout, and for Canceled by a deadline;
// ErrAuthentication for SASL and TLSRefused; errors.ErrUnsupported for Unsupported.
type Error struct {
	Op    string // "dial", "tls", "sasl", "write", "read", or the name of the request
	Addr  Addr
	Cause Cause
	Sent  bool // the request may have reached the broker, and was not answered
	Err   error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %v: %v: %v", e.Op, e.Addr, e.Cause, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Is(target error) bool {
	switch target {
	case cluster.ErrUnknownOutcome:
		return e.Sent
	case cluster.ErrTimeout:
		return e.Cause == Timeout || e.Cause == Canceled && errors.Is(e.Err, context.DeadlineExceeded)
	case cluster.ErrAuthentication:
		return e.Cause == SASL || e.Cause == TLSRefused
	case errors.ErrUnsupported:
		return e.Cause == Unsupported
	case cluster.ErrUnreachable:
		switch e.Cause {
		case SASL, TLSRefused, Canceled, Unsupported:
			return false
		}
		return !e.Sent
	}
	return false
}

// causeOf finds the cause of an error of the network, TLS or a context. The
// order matters: a resolver's time-out is DNS, and a TLS alert arrives wrapped
// as an error of the network.
func causeOf(err error) Cause {
	var own *Error
	var dns *net.DNSError
	var netErr net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &own):
		return own.Cause
	case errors.As(err, &dns):
		return DNS
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case isTLS(err):
		return TLS
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT),
		errors.As(err, &netErr) && netErr.Timeout():
		return Timeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return Closed
	case errors.As(err, &op):
		if alert, ok := remoteAlert(op); ok {
			return alertCause(alert)
		}
		return Network
	}
	return Unknown
}

func isTLS(err error) bool {
	var (
		verify  *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	return errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &unknown) ||
		errors.As(err, &host) || errors.As(err, &invalid)
}

// remoteAlert gives the number of an alert the peer sent. crypto/tls wraps its
// unexported alert type (a uint8) in a net.OpError; tls.AlertError is for QUIC only.
func remoteAlert(op *net.OpError) (uint8, bool) {
	v := reflect.ValueOf(op.Err)
	if !v.IsValid() || v.Kind() != reflect.Uint8 {
		return 0, false
	}
	return uint8(v.Uint()), true
}

// alertCause tells the alerts that are about our certificate (RFC 8446 section
// 6.2) from the others.
func alertCause(alert uint8) Cause {
	switch alert {
	case 41, 42, 43, 44, 45, 46, 48, 49, 116: // no_certificate .. unknown_ca, access_denied, certificate_required
		return TLSRefused
	}
	return TLS
}
