package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"
)

// Whatever a broker sends, readAnswer gives the body of the call that is due or
// an error, and every frame goes back.
func FuzzReadAnswer(f *testing.F) {
	good := binary.BigEndian.AppendUint32(nil, 9)
	good = binary.BigEndian.AppendUint32(good, 0)
	f.Add(append(good, "\x00body"...), true)
	f.Add(append(good, "\x01\x01\x02ab"...), true)
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0}, false)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, false)
	f.Fuzz(func(t *testing.T, data []byte, flexible bool) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		pool := NewFramePool(1 << 20)
		c := newConn(ours, Addr{}, (&Config{MaxFrame: 1 << 16, Frames: pool}).withDefaults())
		call := &Call{Key: 3, Flexible: flexible, Done: func(*Frame, error) {}}
		if why := c.enqueue([]*entry{{call: call, deadline: time.Now().Add(time.Hour)}}); why != nil {
			t.Fatal(why)
		}
		frame, e, err := c.readAnswer(bufio.NewReader(bytes.NewReader(data)), newLowWater(c))
		if err != nil {
			return
		}
		if e.call != call || !bytes.HasSuffix(data[:8+frame.to], frame.Bytes()) {
			t.Errorf("not the bytes of the answer")
		}
		if frame.to != int(binary.BigEndian.Uint32(data))-4 {
			t.Errorf("frame of %d bytes", frame.to)
		}
		frame.Release()
	})
}

func FuzzSkipTags(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{1, 5, 3, 'a', 'b', 'c', 'x'})
	f.Add([]byte{2, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := skipTags(data)
		if err == nil && (n < 1 || n > len(data)) {
			t.Errorf("%d of %d bytes skipped", n, len(data))
		}
		if err == nil { // the same section cut short is an error
			if _, err := skipTags(data[:n-1]); err == nil {
				t.Error("a section cut short was taken")
			}
		}
	})
}

func FuzzParseApiVersions(f *testing.F) {
	f.Add([]byte{0, 35, 0, 0, 0, 0}, int16(3))
	f.Add([]byte{0, 0, 2, 0, 18, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0}, int16(3))
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		version = max(1, min(version, firstVersionRequest))
		resp, err := parseApiVersions(body, version)
		if err == nil && Code(resp.ErrorCode) == unsupportedVersion {
			if next := fallback(resp, version); next >= version || next < 0 {
				t.Errorf("falls back from %d to %d", version, next)
			}
		}
	})
}
