package broker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// Membership is our place in the cluster. Run does the work; the other methods may
// be called at any time and from any goroutine.
type Membership struct {
	cfg      Config
	logger   *slog.Logger
	brokers  *wire.Client
	quorum   *metalog.Quorum
	log      *metalog.Reader
	nudge    chan struct{} // capacity 1: a heartbeat now
	holder   string        // this life, among those who have identities
	passages passages

	starting time.Duration // startTimeout

	mu     sync.Mutex
	self   Self
	moved  chan struct{} // closed with the next change of self
	id     Identity      // as registered, or about to be
	kept   Kept          // as it is stored; no Holder before that, and after we have left
	wishes wishes
	leave  bool          // nothing is ours any more: the guard moves everything away
	ended  chan struct{} // closed when we have left
	end    sync.Once
}

// Self is what we are to the cluster, as its controller answered last.
type Self struct {
	// Broker is our id, -1 before there is one. Epoch changes with every
	// registration as somebody new.
	Broker int32
	Epoch  int64
	// Registered, and whether Fenced: a fenced broker leads nothing.
	Registered, Fenced bool
	// Shutdown: the controller has taken all leadership from us, as we wished.
	Shutdown bool
	// moved: in the life before we were registered with other addresses.
	moved bool
	// open: the controller has been told that we are not cordoned, and not otherwise since.
	open bool
}

// New connects to nothing yet. The error lists every bad field.
func New(cfg Config) (*Membership, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	brokers, controllers := cfg.wires()
	m := &Membership{
		cfg: cfg, logger: cfg.Logger, brokers: wire.NewClient(cfg.Bootstrap, brokers),
		nudge: make(chan struct{}, 1), holder: newHolder(), ended: make(chan struct{}), moved: make(chan struct{}),
		self: Self{Broker: -1, Epoch: -1, Fenced: true}, wishes: wishes{cordoned: true}, starting: startTimeout,
	}
	var err error
	m.quorum, err = metalog.NewQuorum(metalog.QuorumConfig{Controllers: cfg.Controllers, Wire: controllers, Brokers: m.brokers.Any})
	if err != nil {
		return nil, err
	}
	m.log = metalog.New(metalog.Config{Quorum: m.quorum, ClusterID: cfg.ClusterID, Logger: cfg.Logger})
	return m, nil
}

// Run joins the cluster and stays in it until ctx ends or Leave is through; both
// give nil. Ending ctx leaves us registered: the session ends some seconds later,
// and the same Identity gets it back. Run returns an error when the cluster cannot
// be joined: ErrNotKRaft, ErrNoControllers, ErrNoID, cluster.ErrAuthorization with
// what is lacking, cluster.ErrClusterReplaced, errors.ErrUnsupported for versions
// that nobody has tried; and ErrDisplaced. It may be called once.
func (m *Membership) Run(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer m.brokers.Close()
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{m.log.Run, m.keep, m.guard, m.tend, m.watchClaim} {
		running.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				cancel(m.named(ctx, err))
			}
		})
	}
	running.Wait()
	m.release(outer)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errLeft) {
		return err
	}
	return nil
}

var errLeft = errors.New("left the cluster")

// Self is what we are now.
func (m *Membership) Self() Self {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// become changes what we are, and wakes who waits for it.
func (m *Membership) become(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.self
	change()
	if m.self != was {
		close(m.moved)
		m.moved = make(chan struct{})
	}
}

// keep holds the session: it registers, sends heartbeats, and does so again with
// whoever is the active controller.
func (m *Membership) keep(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	s := &session{m: m, controller: controller{quorum: m.quorum}, taken: m.cfg.others(), silent: make(silences)}
	defer s.controller.drop()
	const first, most = 100 * time.Millisecond, 500 * time.Millisecond
	for backoff := first; ; {
		step, err := s.turn(ctx)
		if step == giveUp || ctx.Err() != nil {
			return err
		}
		wait := m.cfg.HeartbeatInterval
		switch step {
		case goOn:
			backoff = first
			if s.behind { // he lets us in as soon as we have seen our registration
				wait = min(wait, first)
			}
		default:
			wait, backoff = backoff, min(2*backoff, most)
			m.logger.Info("broker membership", "next", step.String(), "broker", m.Self().Broker, "error", err)
		}
		select {
		case <-time.After(wait):
		case <-m.nudge:
		case <-m.ended:
			return errLeft
		case <-ctx.Done():
			return nil
		}
	}
}

// session is what keep knows between two turns; only its goroutine uses it.
type session struct {
	m          *Membership
	controller controller
	id         Identity
	identified bool
	taken      map[int32]bool // ids that were refused
	silent     silences
	registered bool
	features   []metalog.Feature // as registered, or about to be
	refused    bool              // a heartbeat was, since the last registration: what stands in the log does not
	epoch      int64
	answered   time.Time // the last answer to a heartbeat; at first, when we became who we are
	behind     bool      // we are fenced only because we have not caught up
}

// turn is one registration or one heartbeat.
func (s *session) turn(ctx context.Context) (next, error) {
	if s.m.shutDown() {
		return goOn, nil // no more heartbeats: they would keep us in
	}
	if !s.identified {
		if step, err := s.identify(ctx); step != goOn {
			return step, err
		}
	}
	if !s.registered || s.outgrown() {
		if step, err := s.register(ctx); step != goOn {
			return step, err
		}
	}
	if late(s.answered, time.Now(), s.m.cfg.SessionTimeout) {
		if step, err := s.resume(ctx); step != goOn {
			return step, err
		}
	}
	err := s.beat(ctx)
	step := afterHeartbeat(err)
	switch step {
	case register:
		s.registered, s.refused = false, true
	case seek:
		s.controller.drop()
	}
	return step, err
}

func (m *Membership) shutDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self.Shutdown
}

func (s *session) register(ctx context.Context) (next, error) {
	clusterID := s.m.cfg.ClusterID
	if clusterID == "" {
		var err error
		if clusterID, err = s.m.brokers.ClusterID(ctx); err != nil {
			return seek, err
		}
	}
	if b, ok := s.m.log.Image().Broker(s.id.Broker); ok && b.Incarnation == s.id.Incarnation && elsewhereThan(b.Listeners, s.m.cfg.Listeners) {
		s.m.become(func() { s.m.self.moved = true })
	}
	s.features = s.abilities()
	req := registration(s.id, s.m.cfg, clusterID, epochBefore(s.m.log.Image(), s.id), s.features)
	if epoch, ok := asRegistered(s.m.log.Image(), req); ok && !s.refused {
		s.become(epoch)
		return goOn, nil
	}
	resp, err := s.controller.do(ctx, req)
	var answer *kmsg.BrokerRegistrationResponse
	if err == nil {
		answer = resp.(*kmsg.BrokerRegistrationResponse)
		err = wire.CodeError(answer.ErrorCode)
	}
	step, reason := afterRegistration(err)
	switch step {
	case nextID:
		s.disown(ctx)
		s.taken[s.id.Broker], s.identified = true, false
		return step, err
	case giveUp:
		return step, reason
	case seek:
		s.controller.drop()
		return step, err
	}
	s.become(answer.BrokerEpoch)
	return goOn, nil
}

// abilities are the features to register.
func (s *session) abilities() []metalog.Feature {
	most := int16(newestLevel)
	if s.m.cfg.Untested {
		most = math.MaxInt16
	}
	return abilities(s.m.log.Image(), s.id.Broker, most)
}

// outgrown reports that other brokers are of another release than when we registered. Like
// theirs, our registration is then amended: incarnation and broker epoch stay, and so does
// what we lead.
func (s *session) outgrown() bool { return !slices.Equal(s.features, s.abilities()) }

// become has us registered.
func (s *session) become(epoch int64) {
	s.registered, s.refused, s.epoch = true, false, epoch
	s.m.become(func() { s.m.self.Registered, s.m.self.Epoch = true, epoch })
	s.m.logger.Info("registered as a broker", "broker", s.id.Broker, "epoch", epoch)
}

// catchUp waits, after a session may have ended unseen, until the metadata log
// has been heard again: the first heartbeat lets us in, and from then on we act
// on what the image says. It gives up before the wait costs a session that lives.
func (s *session) catchUp(ctx context.Context) (heard bool) {
	now := time.Now()
	bounded, cancel := context.WithTimeout(ctx, s.m.cfg.SessionTimeout/4)
	defer cancel()
	for version := uint64(0); s.m.log.Heard().Before(now); {
		image, _, err := s.m.log.Next(bounded, max(version, s.m.log.Image().Version))
		if err != nil {
			return false
		}
		version = image.Version
	}
	return true
}

// resume says whether a session that may have ended unseen goes on. Others may have gone on
// in our place, which the store tells. It may be in this very cluster, and be away as long as
// the session of a broker that died with the controller: longer than ours would live without a
// heartbeat. Then it counts that nobody takes the place of one that is not out.
func (s *session) resume(ctx context.Context) (next, error) {
	heard := s.catchUp(ctx)
	bounded, cancel := context.WithTimeout(ctx, s.m.cfg.SessionTimeout/6)
	defer cancel()
	err := s.m.holds(bounded)
	switch {
	case errors.Is(err, ErrDisplaced):
		return giveUp, err
	case err != nil && (ctx.Err() != nil || !heard || !stands(s.m.log.Image(), s.id.Broker, s.epoch)):
		return seek, err
	}
	return goOn, nil
}

// stands reports that a registration is what it was, and not out.
func stands(i metalog.Image, broker int32, epoch int64) bool {
	b, ok := i.Broker(broker)
	return ok && b.Epoch == epoch && !b.Fenced
}

// elsewhereThan reports that a listener has another address than before.
func elsewhereThan(before []metalog.Listener, now []Listener) bool {
	return slices.ContainsFunc(now, func(l Listener) bool {
		return !slices.ContainsFunc(before, func(b metalog.Listener) bool { return b.Name == l.Name && b.Host == l.Host && b.Port == l.Port })
	})
}

// beat is one heartbeat.
func (s *session) beat(ctx context.Context) error {
	active, err := s.controller.connect(ctx)
	if err != nil {
		return err
	}
	s.m.mu.Lock()
	wish := s.m.wishes
	s.m.mu.Unlock()
	req := heartbeat(s.id, s.epoch, s.m.log.Image(), wish)
	version := min(active.MaxVersion(req.Key()), req.MaxVersion())
	resp, err := active.DoVersion(ctx, req, version)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.BrokerHeartbeatResponse)
	if err := heartbeatError(resp); err != nil {
		return err
	}
	s.answered, s.behind = time.Now(), answer.IsFenced && !answer.IsCaughtUp && !wish.fenced && !wish.shutdown
	if was := s.m.Self().Fenced; was != answer.IsFenced {
		s.m.logger.Info("broker membership", "broker", s.id.Broker, "fenced", answer.IsFenced)
	}
	s.m.become(func() {
		s.m.self.Fenced, s.m.self.Shutdown, s.m.self.open = answer.IsFenced, wish.shutdown && answer.ShouldShutdown, !wish.cordoned
	})
	return nil
}

// mine reports whether a broker of the log is us, as we are registered now.
func (m *Membership) mine(image metalog.Image) (*metalog.Broker, Self, bool) {
	m.mu.Lock()
	self, id := m.self, m.id
	m.mu.Unlock()
	b, ok := image.Broker(self.Broker)
	return b, self, ok && self.Registered && b.Epoch == self.Epoch && slices.Contains(b.Directories, id.Directory)
}
