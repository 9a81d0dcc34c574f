package broker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/metalog/metalogtest"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const fakeID = "fake-cluster"

// fake is a cluster that registers brokers: controllers and a broker in one.
type fake struct {
	*metalogtest.Quorum
	mu       sync.Mutex
	epochs   int64
	brokers  map[int32]*metalog.Broker
	sessions map[int32]bool // those that are alive
	beats    []*kmsg.BrokerHeartbeatRequest
	refuse   map[int16]int16 // by request: this error code
	bits     int32           // authorized operations
	// registrations were taken.
	registrations int
	logins        []string // mechanisms
	allotted      []int32  // brokers that were given producer ids
}

func startFake(t *testing.T, controllers int, records ...metalog.Record) *fake {
	t.Helper()
	f := &fake{Quorum: metalogtest.Start(t, controllers), brokers: make(map[int32]*metalog.Broker), sessions: make(map[int32]bool),
		refuse: make(map[int16]int16), bits: 1<<7 | 1<<8 | 1<<9, epochs: 10}
	f.Offer(3, 12)
	f.Offer(60, 1)
	f.Handle(f.answer)
	f.Append(append([]metalog.Record{
		metalog.SetFeature{Name: metadataVersion, Level: cordonLevel},
		metalog.RegisterBroker{Broker: metalog.Broker{ID: 1, Listeners: []metalog.Listener{{Name: "INTERNAL", Host: "127.0.0.1", Port: 1}}}},
	}, records...)...)
	return f
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) answer(controller int, req kmsg.Request) kmsg.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	code := f.refuse[req.Key()]
	switch req := req.(type) {
	case *kmsg.MetadataRequest:
		resp := kmsg.NewPtrMetadataResponse()
		id := fakeID
		resp.ClusterID, resp.ControllerID = &id, 1
		return resp
	case *kmsg.SASLHandshakeRequest:
		resp := kmsg.NewPtrSASLHandshakeResponse()
		resp.ErrorCode, resp.SupportedMechanisms = 33, f.logins
		return resp
	case *kmsg.DescribeClusterRequest:
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.ClusterID, resp.ClusterAuthorizedOperations = fakeID, f.bits
		return resp
	case *kmsg.BrokerRegistrationRequest:
		return f.register(req, code)
	case *kmsg.BrokerHeartbeatRequest:
		return f.beat(req, code)
	case *kmsg.AllocateProducerIDsRequest:
		f.allotted = append(f.allotted, req.BrokerID)
		return kmsg.NewPtrAllocateProducerIDsResponse()
	case *kmsg.UnregisterBrokerRequest:
		resp := kmsg.NewPtrUnregisterBrokerResponse()
		if b := f.brokers[req.BrokerID]; b != nil {
			f.Append(metalog.UnregisterBroker{ID: req.BrokerID, Epoch: b.Epoch})
			delete(f.brokers, req.BrokerID)
		}
		return resp
	}
	return nil
}

// register is ClusterControlManager.registerBroker in short.
func (f *fake) register(req *kmsg.BrokerRegistrationRequest, code int16) kmsg.Response {
	resp := kmsg.NewPtrBrokerRegistrationResponse()
	old := f.brokers[req.BrokerID]
	switch {
	case code != 0:
		resp.ErrorCode = code
	case req.ClusterID != fakeID:
		resp.ErrorCode = int16(codeInconsistentClusterID)
	case old != nil && f.sessions[req.BrokerID] && old.Incarnation != metalog.UUID(req.IncarnationID):
		resp.ErrorCode = int16(codeDuplicateRegistration)
	default:
		b := metalog.Broker{ID: req.BrokerID, Incarnation: req.IncarnationID, Fenced: true, Directories: []metalog.UUID{req.LogDirs[0]}}
		for _, l := range req.Listeners {
			b.Listeners = append(b.Listeners, metalog.Listener{Name: l.Name, Host: l.Host, Port: l.Port, Protocol: l.SecurityProtocol})
		}
		for _, of := range req.Features {
			b.Features = append(b.Features, metalog.Feature{Name: of.Name, Min: of.MinSupportedVersion, Max: of.MaxSupportedVersion})
		}
		f.registrations++
		if old != nil && old.Incarnation == b.Incarnation {
			b.Epoch, b.Fenced, b.InControlledShutdown = old.Epoch, old.Fenced, old.InControlledShutdown
		} else {
			f.epochs++
			b.Epoch = f.epochs
		}
		resp.BrokerEpoch = b.Epoch
		f.brokers[b.ID], f.sessions[b.ID] = &b, true
		f.Append(metalog.RegisterBroker{Broker: b})
	}
	return resp
}

func (f *fake) beat(req *kmsg.BrokerHeartbeatRequest, code int16) kmsg.Response {
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	f.beats = append(f.beats, req)
	b := f.brokers[req.BrokerID]
	switch {
	case code != 0:
		resp.ErrorCode = code
	case b == nil:
		resp.ErrorCode = int16(codeNotRegistered)
	case b.Epoch != req.BrokerEpoch:
		resp.ErrorCode = int16(codeStaleBrokerEpoch)
	default:
		change := metalog.ChangeBroker{ID: b.ID, Epoch: b.Epoch}
		fenced := req.WantFence || req.WantShutdown || b.Fenced && req.CurrentMetadataOffset+1 < f.End()
		if fenced != b.Fenced {
			change.Fenced, b.Fenced = &fenced, fenced
		}
		if len(req.CordonedLogDirs) != len(b.Cordoned) {
			b.Cordoned = []metalog.UUID{}
			for _, d := range req.CordonedLogDirs {
				b.Cordoned = append(b.Cordoned, d)
			}
			change.Cordoned = b.Cordoned
		}
		if change.Fenced != nil || change.Cordoned != nil {
			f.Append(change)
		}
		resp.IsFenced, resp.ShouldShutdown = b.Fenced, req.WantShutdown
		resp.IsCaughtUp = req.CurrentMetadataOffset+1 >= f.End()
	}
	return resp
}

// joinFake is a membership in a fake cluster, and how to end it.
func joinFake(t *testing.T, f *fake, change func(*Config)) (*Membership, func() error) {
	t.Helper()
	cfg := Config{Bootstrap: f.Addrs(), Controllers: f.Addrs(), IDs: IDs{100, 101}, Identities: new(MemoryIdentities),
		Listeners:         []Listener{{Name: "INTERNAL", Host: "127.0.0.1", Port: 1}},
		HeartbeatInterval: 20 * time.Millisecond, SessionTimeout: 4 * time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var result error
	go func() { result = m.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return m, func() error { <-done; return result }
}

func (f *fake) lastBeat() *kmsg.BrokerHeartbeatRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.beats) == 0 {
		return nil
	}
	return slices.Clone(f.beats)[len(f.beats)-1]
}
