package metalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/clustermirror/mirror/cluster"
)

// Config says what to read and what to keep.
type Config struct {
	// Quorum finds the controllers. It may be shared.
	Quorum *Quorum
	// ClusterID is the cluster's own id; a controller of another one is refused.
	// Default: any.
	ClusterID string
	// Credentials keeps SCRAM credentials in the image. Default: they are skipped.
	Credentials bool
	// History is how many changed things are remembered for Next; who lags further
	// behind is told that anything may differ. Default: 65,536.
	History int
	// Logger hears of changes of controller and of what contradicts itself, never
	// of what stands in records. Default: silent.
	Logger *slog.Logger
}

// Reader follows the metadata log. Run does the work; the other methods may be
// called at any time and from any goroutine.
type Reader struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex
	image   Image
	heard   time.Time
	history []step
	kept    int           // things in history
	changed chan struct{} // closed with the next image
}

// step is what version differs in from the one before.
type step struct {
	version uint64
	delta   Delta
}

// New reads nothing yet.
func New(cfg Config) *Reader {
	cfg.History = cmp.Or(cfg.History, 1<<16)
	return &Reader{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), changed: make(chan struct{}),
	}
}

const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = time.Second
)

// Run follows the log until ctx ends (nil) or going on makes no sense: the
// cluster is another one (cluster.ErrClusterReplaced), a record is of a version
// that nobody here can read (*VersionError), and before the first image: this user
// may not read the log (cluster.ErrAuthorization, ErrAuthentication), the
// controllers are too old (errors.ErrUnsupported), or there is no quorum
// (ErrNotKRaft). Everything else, a lost controller first of all, is tried again
// after 50 ms to a second. The image stays meanwhile.
func (r *Reader) Run(ctx context.Context) error {
	l := r.loader()
	shown := false
	for backoff := firstBackoff; ; {
		began := time.Now()
		err := r.follow(ctx, &l, &shown)
		if ctx.Err() != nil {
			return nil
		}
		if r.hopeless(err) {
			return fmt.Errorf("metadata log: %w", err)
		}
		r.log.Info("metadata log: looking for the active controller", "offset", l.next, "error", err)
		if errors.Is(err, cluster.ErrCorrupt) { // what was loaded is not to be trusted either
			l, shown = r.loader(), false
		}
		if time.Since(began) > maxBackoff {
			backoff = firstBackoff
		}
		select {
		case <-time.After(backoff):
			backoff = min(2*backoff, maxBackoff)
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Reader) loader() *loader { return &loader{credentials: r.cfg.Credentials} }

// hopeless tells errors that trying again does not mend. What a controller
// refuses is believed at the start only: later one that comes up may not know
// its users yet.
func (r *Reader) hopeless(err error) bool {
	var version *VersionError
	if errors.Is(err, cluster.ErrClusterReplaced) || errors.As(err, &version) {
		return true
	}
	starting := r.Image().Version == 0
	return starting && (errors.Is(err, cluster.ErrAuthorization) || errors.Is(err, cluster.ErrAuthentication) ||
		errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ErrNotKRaft))
}

// follow reads from one active controller until that fails. l is replaced when
// the log has to be read anew; shown says whether its image is out.
func (r *Reader) follow(ctx context.Context, l **loader, shown *bool) error {
	active, err := r.cfg.Quorum.Active(ctx)
	if err != nil {
		return err
	}
	defer active.Close()
	r.log.Info("metadata log: following", "controller", active.ID, "epoch", active.Epoch, "offset", (*l).next)
	end := tail{fetched: position{(*l).next, (*l).epoch}}
	for mark := int64(-1); ; {
		got, err := active.fetch(ctx, question{r.cfg.ClusterID, end.fetched, mark, end.waiting != nil})
		if err != nil {
			return err
		}
		switch {
		case got.snapshot != nil:
			*l, *shown = r.loader(), false
			if err := active.snapshot(ctx, r.cfg.ClusterID, *got.snapshot, *l); err != nil {
				return err
			}
			end, mark = tail{fetched: *got.snapshot}, -1
			continue
		case got.diverging && end.waiting == nil:
			// What is committed cannot be lost, so somebody has changed the quorum.
			r.log.Warn("metadata log: our position is not in the controller's log, reading it anew", "offset", (*l).next)
			*l, *shown, end, mark = r.loader(), false, tail{}, -1
			continue
		case got.diverging: // of a controller that was superseded before it had them committed
			end, mark = tail{fetched: position{(*l).next, (*l).epoch}}, -1
			continue
		}
		if err := end.add(got.batches); err != nil {
			return err
		}
		mark = got.mark
		if err := (*l).load(end.committed(mark)); err != nil {
			return err
		}
		if *shown || (*l).next >= mark && mark >= 0 {
			r.show(*l, !*shown)
			*shown = true
		}
	}
}

// show makes the loader's image the present one. An image is not shown before
// it has reached the high watermark for the first time, since what is long
// past would look as if it were true.
func (r *Reader) show(l *loader, anew bool) {
	image, delta, odd := l.take()
	if odd != nil {
		r.log.Warn("metadata log: records contradict the image", "error", odd)
	}
	if anew {
		delta = Delta{All: true}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = time.Now()
	if !anew && image.Offset == r.image.Offset {
		return
	}
	image.Version = r.image.Version + 1
	r.image = image
	r.remember(step{image.Version, delta})
	close(r.changed)
	r.changed = make(chan struct{})
}

// remember keeps what fits; it needs mu. Steps without a change count as one, so
// that idle ones go as well.
func (r *Reader) remember(s step) {
	if s.delta.All {
		r.history, r.kept = nil, 0
	}
	r.history = append(r.history, s)
	r.kept += 1 + s.delta.size()
	for r.kept > r.cfg.History && len(r.history) > 1 {
		r.kept -= 1 + r.history[0].delta.size()
		r.history[0] = step{}
		r.history = r.history[1:]
	}
}

// Image is the present image; Version 0 before the first.
func (r *Reader) Image() Image {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.image
}

// Heard is when an active controller last said that the image is the newest, or
// gave a newer one: an image older than some seconds may be out of date.
func (r *Reader) Heard() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard
}

// Next waits for an image that is newer than the version given and says what may
// differ: the way to follow changes without looking at everything. Begin with
// version 0. The delta is the caller's. The error is ctx's.
func (r *Reader) Next(ctx context.Context, version uint64) (Image, Delta, error) {
	for {
		r.mu.Lock()
		image, changed := r.image, r.changed
		if image.Version > version {
			d := r.since(version)
			r.mu.Unlock()
			return image, d, nil
		}
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return image, Delta{}, ctx.Err()
		}
	}
}

// since joins what happened after a version; it needs mu.
func (r *Reader) since(version uint64) Delta {
	if len(r.history) == 0 || r.history[0].version > version+1 || version == 0 {
		return Delta{All: true}
	}
	var d Delta
	for i := version + 1 - r.history[0].version; i < uint64(len(r.history)); i++ {
		d.merge(&r.history[i].delta)
	}
	return d
}

// Wait waits for an image of which ok is true, and gives it. ok is called once
// for each image that is seen, in this goroutine. The error is ctx's.
func (r *Reader) Wait(ctx context.Context, ok func(Image) bool) (Image, error) {
	image := r.Image()
	for image.Version == 0 || !ok(image) {
		var err error
		if image, _, err = r.Next(ctx, image.Version); err != nil {
			return image, err
		}
	}
	return image, nil
}
