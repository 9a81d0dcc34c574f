package broker

import (
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
)

// next is what a membership does after an answer.
type next uint8

const (
	goOn     next = iota // a heartbeat at the next tick
	register             // the cluster does not know this session: register, at once
	nextID               // the id is somebody else's: take another one
	seek                 // look for the active controller, then the same again
	giveUp               // trying again does not help
)

func (n next) String() string {
	return [...]string{"go on", "register", "next id", "seek", "give up"}[n]
}

// The codes of the protocol that a membership tells apart.
const (
	codeClusterAuthorization  = wire.Code(31)
	codeUnsupportedVersion    = wire.Code(35)
	codeStaleBrokerEpoch      = wire.Code(77)
	codeDuplicateRegistration = wire.Code(101)
	codeNotRegistered         = wire.Code(102)
	codeInconsistentClusterID = wire.Code(104)
	codeInvalidRegistration   = wire.Code(119)
)

// afterHeartbeat decides on the answer to a heartbeat. It is pure.
func afterHeartbeat(err error) next {
	switch {
	case err == nil:
		return goOn
	case errors.Is(err, codeStaleBrokerEpoch), errors.Is(err, codeNotRegistered):
		return register
	}
	return seek
}

// afterRegistration decides on the answer to a registration; its error is the
// reason where going on is of no use. It is pure.
func afterRegistration(err error) (next, error) {
	switch {
	case err == nil:
		return goOn, nil
	case errors.Is(err, codeDuplicateRegistration):
		return nextID, nil
	case errors.Is(err, codeInconsistentClusterID):
		return giveUp, fmt.Errorf("%w: %w", cluster.ErrClusterReplaced, err)
	case errors.Is(err, codeClusterAuthorization):
		return giveUp, fmt.Errorf("registering needs ClusterAction on the cluster: %w", err)
	case errors.Is(err, codeUnsupportedVersion):
		return giveUp, fmt.Errorf("the cluster's feature levels are not those its brokers offer: %w", err)
	case errors.Is(err, codeInvalidRegistration):
		return giveUp, fmt.Errorf("the controller refuses the registration: %w", err)
	}
	return seek, nil
}

// late reports that a session may have ended unseen: the process was stopped, or
// the controllers were away for longer than it lasts. Then others lead by now, and
// we must know it before a heartbeat lets us in again.
func late(lastAnswer, now time.Time, session time.Duration) bool {
	return !lastAnswer.IsZero() && now.Sub(lastAnswer) > session
}

// wishes is what the host wants of the session.
type wishes struct {
	cordoned, fenced, shutdown bool
}
