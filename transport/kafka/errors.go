package kafka

import (
	"errors"
	"fmt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// at names the partition of an error, unless it does so already.
func at(p cluster.Partition, err error) error {
	var o *cluster.OffsetError
	var n *partitionError
	if err == nil || errors.As(err, &o) || errors.As(err, &n) {
		return err
	}
	return &partitionError{p, err}
}

type partitionError struct {
	partition cluster.Partition
	err       error
}

func (e *partitionError) Error() string { return fmt.Sprintf("%v: %v", e.partition, e.err) }
func (e *partitionError) Unwrap() error { return e.err }

// saying is Kafka's error code with Kafka's own words where it sent any.
func saying(code int16, message *string) error {
	err := wire.CodeError(code)
	if err == nil || message == nil || *message == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, *message)
}

// needing says which right it is that is missing.
func needing(right string, err error) error {
	if !errors.Is(err, cluster.ErrAuthorization) {
		return err
	}
	return fmt.Errorf("%w (it takes %s)", err, right)
}
