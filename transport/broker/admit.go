package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
)

// Who may fetch as a follower. Its requests never come to a real broker, which would
// look for ClusterAction first, so that is found out by itself: a client that logs in,
// or that nobody knows the name of, is asked about at the real broker of his connection,
// which knows him from there. One that shows a certificate instead has to be the broker
// that he says he is: we see which certificate that broker shows.

const (
	// proofLasts is how long a real broker's word counts. A session that has run out
	// (KIP-368) and a permission that was taken away end a follower after that time.
	proofLasts = 5 * time.Second
	// judgePatience bounds a login, and the question whether he may.
	judgePatience = 5 * time.Second
)

const (
	judgeVersion = 13 // of Fetch: the first that names topics by id

	codeNotAuthorized = int16(29) // TOPIC_AUTHORIZATION_FAILED
)

// nowhere is the id of a topic that no cluster has.
var nowhere = [16]byte{'n', 'o', ' ', 's', 'u', 'c', 'h', ' ', 't', 'o', 'p', 'i', 'c', '.', '.', '.'}

// proof is that a client may fetch as a replica.
type proof struct {
	replica int32
	until   time.Time // zero: as long as the connection
}

func (p *proof) holds(replica int32, now time.Time) bool {
	return p != nil && p.replica == replica && (p.until.IsZero() || now.Before(p.until))
}

// proven reports that nobody has to be asked.
func (c *client) proven(replica int32) bool { return c.proof.holds(replica, time.Now()) }

// admit finds out whether a client may fetch as a replica. False is for one that the
// real broker refuses, who is to be sent there; an error ends the connection.
func (c *client) admit(ctx context.Context, h header, replica int32) (bool, error) {
	if c.proven(replica) {
		return true, nil
	}
	c.proof = nil
	bounded, cancel := context.WithTimeout(ctx, c.server.patience)
	defer cancel()
	if cert := c.betweenBrokers(); cert != nil {
		err := c.server.shown.is(bounded, cert, replica)
		if err != nil {
			c.refused(ctx, replica, err)
			return false, err
		}
		c.proof = &proof{replica: replica}
		return true, nil
	}
	code, err := c.judged(bounded, h, replica)
	switch {
	case err == nil && code == codeUnknownTopicID:
		c.proof = &proof{replica: replica, until: time.Now().Add(c.server.trust)}
		return true, nil
	case err == nil && code == codeNotAuthorized:
		c.refused(ctx, replica, fmt.Errorf("%w: ClusterAction on the cluster is missing", cluster.ErrAuthorization))
		return false, nil
	case err == nil:
		err = fmt.Errorf("%w: code %d for a topic that is not there", errNoAnswer, code)
	}
	err = fmt.Errorf("whether replica %d may fetch: %w", replica, err)
	c.refused(ctx, replica, err)
	return false, err
}

// judged asks the real broker, in the client's name, for a topic that is not there, as
// a follower: what it says shows whether that is permitted. A client without a login is
// the same one at any real broker, so that one that dies is replaced.
func (c *client) judged(ctx context.Context, h header, replica int32) (code int16, err error) {
	const tries = 3
	for range tries {
		if code, err = c.judgedOnce(ctx, h, replica); err == nil || c.login || ctx.Err() != nil || c.real == nil {
			break
		}
		c.real.Close()
		c.real = nil
	}
	return code, err
}

func (c *client) judgedOnce(ctx context.Context, h header, replica int32) (int16, error) {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(judgeVersion)
	req.ReplicaID, req.SessionEpoch, req.MaxBytes = replica, -1, 1
	topic, part := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	topic.TopicID, part.CurrentLeaderEpoch, part.PartitionMaxBytes = nowhere, -1, 1
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	h.key = int16(kmsg.Fetch)
	resp := kmsg.NewPtrFetchResponse()
	release, err := c.ask(ctx, h, req, resp)
	if err != nil {
		return 0, err
	}
	defer release()
	if resp.ErrorCode != 0 {
		return resp.ErrorCode, nil
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errNoAnswer
	}
	return resp.Topics[0].Partitions[0].ErrorCode, nil
}

// refusedEvery is how often it is told that followers are refused.
const refusedEvery = 10 * time.Second

// refused tells the operator that somebody is not heard as a follower: when it is a real
// broker, its replicas stand still.
func (c *client) refused(ctx context.Context, replica int32, why error) {
	s, now := c.server, time.Now().UnixNano()
	last := s.told.Load()
	if ctx.Err() != nil || last > 0 && now-last < int64(refusedEvery) || !s.told.CompareAndSwap(last, now) {
		return
	}
	s.cfg.Logger.Warn("a follower is not let in", "listener", c.listener, "client", c.conn.RemoteAddr(), "replica", replica, "error", why)
}
