package kafkatest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"net"
	"syscall"
	"testing"
	"time"
)

func TestFlipBit(t *testing.T) {
	for _, d := range []Direction{Read, Write} {
		c, link := dial(t, echo)
		shot := link.FlipBit(d, 1000)
		small := make([]byte, 1000)
		if !bytes.Equal(roundTrip(t, c, small), small) {
			t.Errorf("direction %d: a small piece was changed", d)
		}
		large := make([]byte, 20_000)
		flipped := 0
		for _, b := range roundTrip(t, c, large) {
			flipped += bits.OnesCount8(b)
		}
		if flipped != 1 {
			t.Errorf("direction %d: %d bits flipped", d, flipped)
		}
		<-shot.Done()
		if !bytes.Equal(roundTrip(t, c, large), large) {
			t.Errorf("direction %d: flipped twice", d)
		}
	}
}

// requests serves frames of a four-byte length and that many bytes, tells
// their sizes, and answers each with one byte.
func requests(got chan<- int) func(net.Conn) {
	return func(c net.Conn) {
		for {
			var size [4]byte
			if _, err := io.ReadFull(c, size[:]); err != nil {
				return
			}
			n, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:])))
			if err != nil {
				return
			}
			got <- int(n)
			if _, err := c.Write([]byte("!")); err != nil {
				return
			}
		}
	}
}

func frame(n int) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(n)), make([]byte, n)...)
}

// TestUnknownOutcome: the server has all of the write, the client a reset and
// no answer.
func TestUnknownOutcome(t *testing.T) {
	for name, arm := range map[string]func(*Link) *Shot{
		"CutAfterWrite":   func(l *Link) *Shot { return l.CutAfterWrite(100_000) },
		"CutBeforeAnswer": func(l *Link) *Shot { return l.CutBeforeAnswer(100_000) },
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan int, 10)
			c, link := dial(t, requests(got))
			shot := arm(link)
			if _, err := c.Write(frame(1000)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatalf("small request: %v", err)
			}
			if _, err := c.Write(frame(300_000)); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read %d bytes, %v", n, err)
			}
			<-shot.Done()
			if a, b := <-got, <-got; a != 1000 || b != 300_000 {
				t.Errorf("server got %d and %d bytes", a, b)
			}
			Eventually(t, 5*time.Second, func(context.Context) error {
				if link.Conns() != 0 {
					return errors.New("connection is still there")
				}
				return nil
			})
		})
	}
}
