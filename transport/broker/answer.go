package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// looked are the requests of clients that concern leaders, and how they are answered
// for what we lead.
var looked = map[kmsg.Key]func(*client, context.Context, header, []byte) error{
	kmsg.Produce:              (*client).produce,
	kmsg.Fetch:                (*client).consume,
	kmsg.ListOffsets:          (*client).listOffsets,
	kmsg.DeleteRecords:        (*client).deleteRecords,
	kmsg.OffsetForLeaderEpoch: (*client).epochEnds,
	kmsg.WriteTxnMarkers:      (*client).markers,
	kmsg.DescribeProducers:    (*client).describeProducers,
	kmsg.ShareFetch:           (*client).shareFetch,
}

// own answers a client's request for what we lead; done is false when it is for a
// real broker alone. Whatever we answer, the real broker is asked first, over the
// client's own connection: he is authenticated and authorized there, and what he is
// refused there stands. Of what is only lent to us the real broker's "not the leader" is
// the answer: he tries again, and soon finds a leader. Only that he is out of range, of a
// partition that is being cut, no consumer is told before there is a new epoch.
func (c *client) own(ctx context.Context, h header, b []byte) (done bool, err error) {
	if h.key == int16(kmsg.ApiVersions) {
		return true, c.apiVersions(ctx, h, b)
	}
	answer, ok := looked[kmsg.Key(h.key)]
	if c.server.lent && kmsg.Key(h.key) != kmsg.Fetch {
		return false, nil
	}
	if !ok || c.server.led.empty() && c.consumer == nil && c.server.coming == nil {
		return false, nil
	}
	if h.version > kmsg.RequestForKey(h.key).MaxVersion() { // ApiVersions offered none such
		return true, fmt.Errorf("%w: %s version %d", errFrame, kmsg.NameForKey(h.key), h.version)
	}
	return true, answer(c, ctx, h, b)
}

// wrap is a request in the words of a client: his header, with another version.
func wrap(h header, req kmsg.Request) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(h.key))
	b = binary.BigEndian.AppendUint16(b, uint16(req.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, uint32(h.correlation))
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.client)))
	b = append(b, h.client...)
	if req.IsFlexible() {
		b = append(b, 0)
	}
	return req.AppendTo(b)
}

// consult asks the real broker and gives the whole answer, which holds memory until
// the caller gives it back to server.answers.
func (c *client) consult(ctx context.Context, b []byte) (request, error) {
	if err := c.connect(ctx); err != nil {
		return request{}, err
	}
	stop := context.AfterFunc(ctx, func() { c.real.Close() })
	defer stop()
	if err := writeFrame(c.real, b); err != nil {
		return request{}, err
	}
	answer, err := readAnswer(ctx, c.real, c.server.answers)
	if err == nil && string(answer.bytes[:4]) != string(b[4:8]) {
		c.server.answers.give(answer.held)
		return request{}, errNoAnswer
	}
	return answer, err
}

// readAnswer reads one frame of a real broker. Its memory is taken at once, so that
// of many who wait for some nobody holds a part.
func readAnswer(ctx context.Context, r io.Reader, memory *budget) (request, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return request{}, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:])))
	if size < 4 || size > memory.size {
		return request{}, fmt.Errorf("%w: %d bytes (limit %d)", errNoAnswer, size, memory.size)
	}
	if err := memory.take(ctx, size); err != nil {
		return request{}, err
	}
	answer := request{bytes: make([]byte, size), held: size}
	if _, err := io.ReadFull(r, answer.bytes); err != nil {
		memory.give(size)
		return request{}, err
	}
	return answer, nil
}

// readAnswerBody reads an answer to a request of a version.
func readAnswerBody(b []byte, version int16, resp kmsg.Response) error {
	resp.SetVersion(version)
	b = b[4:]
	if flexibleAnswer(resp) {
		if len(b) == 0 || b[0] != 0 { // no broker sends tags here
			return fmt.Errorf("%w: %s with a tagged header", errNoAnswer, kmsg.NameForKey(resp.Key()))
		}
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		return fmt.Errorf("%w: %s: %w", errNoAnswer, kmsg.NameForKey(resp.Key()), err)
	}
	return nil
}

// flexibleAnswer: ApiVersions has no flexible response header.
func flexibleAnswer(resp kmsg.Response) bool {
	return resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions)
}

// reply sends an answer of our own.
func (c *client) reply(h header, resp kmsg.Response, version int16) error {
	resp.SetVersion(version)
	b := binary.BigEndian.AppendUint32(nil, uint32(h.correlation))
	if flexibleAnswer(resp) {
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	head := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	c.conn.SetWriteDeadline(time.Now().Add(c.server.cfg.FrameTimeout))
	_, err := (&net.Buffers{head, b}).WriteTo(c.conn)
	return err
}

// relay sends a real broker's answer as it came.
func (c *client) relay(b []byte) error {
	c.conn.SetWriteDeadline(time.Now().Add(c.server.cfg.FrameTimeout))
	return writeFrame(c.conn, b)
}

// ask asks the real broker in a client's words; the answer is in memory that
// release gives back.
func (c *client) ask(ctx context.Context, h header, req kmsg.Request, resp kmsg.Response) (release func(), err error) {
	answer, err := c.consult(ctx, wrap(h, req))
	if err != nil {
		return nil, err
	}
	if err := readAnswerBody(answer.bytes, req.GetVersion(), resp); err != nil {
		c.server.answers.give(answer.held)
		return nil, err
	}
	return func() { c.server.answers.give(answer.held) }, nil
}
