package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

const codeNotController = wire.Code(41)

// controller is a connection to whoever is the active controller, for one
// goroutine.
type controller struct {
	quorum *metalog.Quorum
	active *metalog.Active
}

// connect gives the connection, looking for the active controller when there is
// none.
func (c *controller) connect(ctx context.Context) (*metalog.Active, error) {
	if c.active == nil {
		active, err := c.quorum.Active(ctx)
		if err != nil {
			return nil, err
		}
		c.active = active
	}
	return c.active, nil
}

// do sends one request. After an error of the connection the next one looks for
// the active controller again; after a code that says so, call drop.
func (c *controller) do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	active, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := active.Do(ctx, req)
	if err != nil {
		c.drop()
	}
	return resp, err
}

func (c *controller) drop() {
	if c.active != nil {
		c.active.Close()
		c.active = nil
	}
}
