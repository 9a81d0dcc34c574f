package memory

import (
	"context"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// Call is a kind of request.
type Call string

// The requests that a Client makes.
const (
	CallLeaders        Call = "Leaders"
	CallOpen           Call = "Open"
	CallFetch          Call = "Fetch"
	CallOffsets        Call = "Offsets" // LogOffsets too
	CallEpochEnds      Call = "EpochEnds"
	CallRead           Call = "Read"
	CallEnds           Call = "Ends"
	CallAppend         Call = "Append"
	CallTruncate       Call = "Truncate"
	CallTrim           Call = "Trim"
	CallStartAt        Call = "StartAt"
	CallRaiseEpochs    Call = "RaiseEpochs"
	CallFence          Call = "Fence"
	CallAbortOpen      Call = "AbortOpen"
	CallGuardProducers Call = "GuardProducers"
	CallTopics         Call = "Topics"
	CallTopicConfigs   Call = "TopicConfigs"
	CallCreateTopics   Call = "CreateTopics"
	CallGrowTopics     Call = "GrowTopics"
	CallAlterTopics    Call = "AlterTopics"
	CallGroups         Call = "Groups"
	CallCommitted      Call = "Committed"
	CallCommit         Call = "Commit"
	CallACLs           Call = "ACLs"
	CallCreateACLs     Call = "CreateACLs"
	CallDeleteACLs     Call = "DeleteACLs"
	CallRebuild        Call = "Rebuild"
	CallDescribe       Call = "Describe"
	CallInspect        Call = "Inspect"
	CallID             Call = "ID"
)

// Op is a request that is about to be made.
type Op struct {
	Client     string // the Client's name; empty for the Cluster itself
	Call       Call
	Broker     int32               // of Open and Fetch, and the leader of what Append writes to; otherwise -1
	Partitions []cluster.Partition // of the request, as far as it names any
	Names      []string            // topics or groups
}

// FaultKind is what happens to a request.
type FaultKind int

// The kinds of faults.
const (
	Pass         FaultKind = iota // nothing happens to it
	LoseRequest                   // it is not carried out; the caller gets an error
	LoseAnswer                    // it is carried out; the caller gets an error
	DelayRequest                  // it is carried out later, even when its caller has given up
	DelayAnswer                   // it is carried out at once and answered later
	BreakBroker                   // its broker goes down first (Open, Fetch, Append)
	FreezeFirst                   // its partitions freeze first (see Cluster.Freeze)
	Crash                         // its client is dead from here on: nothing is carried out, every call fails
	CrashAfter                    // it is carried out, and then its client is dead
)

// Fault is what a fault function answers. The zero value lets the request pass.
type Fault struct {
	Kind FaultKind
	// Err is what the caller gets for a lost request or answer. Default: an error that
	// wraps cluster.ErrUnknownOutcome.
	Err error
	// Delay and Until say when a delayed request is carried out or answered: when the
	// time is over, or when the channel is closed if there is one.
	Delay time.Duration
	Until <-chan struct{}
}

// SetFault has every request of every client shown to f before it is made; nil
// ends that. f is called without a lock, from the goroutine of the request, and may
// use the cluster.
func (c *Cluster) SetFault(f func(Op) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

func (f Fault) err() error {
	if f.Err != nil {
		return f.Err
	}
	return cluster.ErrUnknownOutcome
}

// wait ends when the fault lets go (true), or when ctx or the cluster ends.
func (f Fault) wait(ctx context.Context, quit <-chan struct{}) bool {
	var over <-chan time.Time
	if f.Until == nil {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return true
	case <-f.Until:
		return true
	case <-ctx.Done():
	case <-quit:
	}
	return false
}
