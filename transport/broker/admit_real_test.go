package broker

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	segplain "github.com/segmentio/kafka-go/sasl/plain"
	segscram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/kafkatest"
	"github.com/clustermirror/mirror/internal/lead"
	"github.com/clustermirror/mirror/internal/wire"
)

// between is a cluster whose brokers know each other, and whose authorizer knows us by
// the name of mirror, with the documented permissions and nothing else.
type between struct {
	k        *kafkatest.Cluster
	cfg      Config      // ours
	protocol int16       // of INTERNAL
	secure   *tls.Config // our side of it
	name     string      // ours, as the authorizer has it
}

const (
	jaasPlain = "org.apache.kafka.common.security.plain.PlainLoginModule required "
	jaasScram = "org.apache.kafka.common.security.scram.ScramLoginModule required "
	authority = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
	lifetime  = 2 * time.Second // of a login between brokers
)

// passwords is a cluster where brokers log in with a mechanism.
func passwords(t *testing.T, mechanism string, nodes int) *between {
	t.Helper()
	users := "user_broker=b user_mirror=m user_reader=r user_other=o;"
	set := map[string]string{
		"listener.security.protocol.map":     "CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
		"sasl.mechanism.controller.protocol": "PLAIN", "sasl.mechanism.inter.broker.protocol": mechanism,
		"authorizer.class.name": authority, "super.users": "User:broker",
		"listener.name.controller.sasl.enabled.mechanisms":                                    "PLAIN",
		"listener.name.controller.plain.sasl.jaas.config":                                     jaasPlain + "username=broker password=b " + users,
		"listener.name.internal.sasl.enabled.mechanisms":                                      mechanism,
		"listener.name.internal." + strings.ToLower(mechanism) + ".connections.max.reauth.ms": fmt.Sprint(lifetime.Milliseconds()),
		"listener.name.internal." + strings.ToLower(mechanism) + ".sasl.jaas.config":          jaasScram + "username=broker password=b;",
	}
	if mechanism == "PLAIN" {
		set["listener.name.internal.plain.sasl.jaas.config"] = jaasPlain + "username=broker password=b " + users
		set["listener.name.client.plain.sasl.jaas.config"] = jaasPlain + users
	}
	b := &between{protocol: 2, name: "mirror"}
	b.k = kafkatest.Start(t, kafkatest.Options{Nodes: nodes, SASL: mechanism, User: "broker", Password: "b", Config: set})
	if mechanism != "PLAIN" {
		credentials(t, b.k.Client(t), mechanism, map[string]string{"mirror": "m", "reader": "r"})
	}
	b.cfg = Config{Bootstrap: b.k.Internal(), SASL: login(t, mechanism, "mirror", "m"),
		ControllerSecurity: true, ControllerSASL: segplain.Mechanism{Username: "mirror", Password: "m"}}
	return b
}

func login(t *testing.T, mechanism, user, password string) sasl.Mechanism {
	t.Helper()
	if mechanism == "PLAIN" {
		return segplain.Mechanism{Username: user, Password: password}
	}
	m, err := segscram.Mechanism(segscram.SHA512, user, password)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// credentials makes users of SCRAM.
func credentials(t *testing.T, admin *kgo.Client, mechanism string, users map[string]string) {
	t.Helper()
	kind, hash := int8(2), sha512.New
	if mechanism == "SCRAM-SHA-256" {
		kind, hash = 1, sha256.New
	}
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	for user, password := range users {
		one := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		one.Name, one.Mechanism, one.Iterations, one.Salt = user, kind, 4096, []byte("salt of "+user)
		var err error
		if one.SaltedPassword, err = pbkdf2.Key(hash, password, one.Salt, int(one.Iterations), hash().Size()); err != nil {
			t.Fatal(err)
		}
		req.Upsertions = append(req.Upsertions, one)
	}
	resp, err := req.RequestWith(within(t, time.Minute), admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.Results {
		if r.ErrorCode != 0 {
			t.Fatalf("credentials of %s: %d", r.User, r.ErrorCode)
		}
	}
}

// certified is a cluster where brokers show certificates.
func certified(t *testing.T) *between {
	t.Helper()
	b := &between{protocol: 1, name: "CN=mirror"}
	b.k = kafkatest.Start(t, kafkatest.Options{SASL: "PLAIN", User: "broker", Password: "b", Mutual: true, Config: map[string]string{
		"authorizer.class.name": authority, "super.users": "User:broker;User:CN=localhost",
	}})
	ours := b.certificate(t, "mirror")
	b.cfg = Config{Bootstrap: b.k.Internal(), TLS: b.as(ours)}
	b.secure = &tls.Config{Certificates: []tls.Certificate{ours}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: b.k.TLSConfig().RootCAs}
	return b
}

func (b *between) certificate(t *testing.T, name string) tls.Certificate {
	t.Helper()
	cert, err := b.k.Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// as is the side of a client with certificates.
func (b *between) as(certs ...tls.Certificate) *tls.Config {
	cfg := b.k.TLSConfig()
	cfg.Certificates = certs
	return cfg
}

// start has us lead a topic of 50 records that a real broker has copied.
func (b *between) start(t *testing.T, replicas ...int32) (us *joined, p *lead.Partition) {
	t.Helper()
	admin := b.k.Client(t)
	allow(t, admin, b.name, "", kmsg.ACLOperationDescribe, kmsg.ACLOperationAlter, kmsg.ACLOperationClusterAction)
	b.cfg.IDs, b.cfg.Identities = IDs{First: 100, Last: 100}, new(MemoryIdentities)
	b.cfg.Ours = func(topic string, _ cluster.TopicID, _ int32) bool { return strings.HasPrefix(topic, "mirrored") }
	kafkatest.Eventually(t, time.Minute, func(ctx context.Context) error { // the broker hears of ACLs a little later
		us = joinOn(t, b.k, b.cfg, b.protocol, b.secure, "INTERNAL")
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		joined := make(chan error, 1)
		go func() { joined <- us.WaitJoined(bounded) }()
		select {
		case err := <-us.done:
			return err
		case err := <-joined:
			return err
		}
	})
	p = leadTopic(t, us, admin, "mirrored", replicas...)
	appendTo(t, p, 0, 50)
	return us, p
}

// at is our address between brokers.
func (b *between) at(us *joined) string {
	l := us.cfg.Listeners[0]
	return net.JoinHostPort(l.Host, fmt.Sprint(l.Port))
}

// fetchAll is a follower's fetch of everything, with replica id 1.
func fetchAll(p *lead.Partition) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(17)
	req.SessionEpoch, req.MaxBytes, req.ReplicaState.ID, req.ReplicaState.Epoch = -1, 1<<20, 1, 1
	topic, part := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	topic.TopicID, _ = p.ID()
	part.PartitionMaxBytes, part.CurrentLeaderEpoch, part.LastFetchedEpoch = 1<<20, p.Epoch(), -1
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

// answered is what such a fetch is told.
func answered(resp *kmsg.FetchResponse) (kmsg.FetchResponseTopicPartition, error) {
	if resp.ErrorCode != 0 || len(resp.Topics) == 0 {
		return kmsg.FetchResponseTopicPartition{}, fmt.Errorf("%w: %+v", errNothing, resp)
	}
	return resp.Topics[0].Partitions[0], nil
}

// raw fetches over a connection without a login.
func raw(t *testing.T, conn net.Conn, p *lead.Partition) (kmsg.FetchResponseTopicPartition, error) {
	t.Helper()
	nothing := kmsg.FetchResponseTopicPartition{}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if err := writeFrame(conn, frameOf(1, 17, 9, fetchAll(p).AppendTo([]byte{0})...)); err != nil {
		return nothing, err
	}
	got, err := readRequest(t.Context(), conn, 1<<20, newBudget(1<<20))
	if err != nil {
		return nothing, err
	}
	resp := kmsg.NewPtrFetchResponse()
	if err := readAnswerBody(got.bytes, 17, resp); err != nil {
		return nothing, err
	}
	return answered(resp)
}

// TestRealFollowersLogIn: real brokers that log in at each other copy from us, over
// several lifetimes of a login on one connection; who has no password, a wrong one, or a
// right one without ClusterAction, gets no byte.
func TestRealFollowersLogIn(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			b := passwords(t, mechanism, 1)
			us, p := b.start(t, 1)
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.at(us))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got, err := raw(t, conn, p); err == nil {
				t.Errorf("without a login: %+v", got)
			}
			as := func(user, password string) (kmsg.FetchResponseTopicPartition, error) {
				t.Helper()
				ctx := within(t, 20*time.Second)
				conn, err := wire.Dial(ctx, wire.Addr{Host: us.cfg.Listeners[0].Host, Port: int32(us.cfg.Listeners[0].Port)}, &wire.Config{SASL: login(t, mechanism, user, password)})
				if err != nil {
					return kmsg.FetchResponseTopicPartition{}, err
				}
				defer conn.Close()
				resp, err := conn.DoVersion(ctx, fetchAll(p), 17)
				if err != nil {
					return kmsg.FetchResponseTopicPartition{}, err
				}
				return answered(resp.(*kmsg.FetchResponse))
			}
			if _, err := as("broker", "wrong"); !errors.Is(err, cluster.ErrAuthentication) {
				t.Errorf("with a wrong password: %v", err)
			}
			if got, err := as("reader", "r"); err != nil || got.ErrorCode != codeNotAuthorized || got.HighWatermark >= 0 || len(got.RecordBatches) > 0 {
				t.Errorf("without ClusterAction: %+v, %v", got, err)
			}
			began := us.accepted.Load()
			for next, end := int64(50), time.Now().Add(3*lifetime); time.Now().Before(end); next++ {
				appendTo(t, p, next, next+1)
			}
			if now := us.accepted.Load(); now != began {
				t.Errorf("a login that was renewed cost %d connections", now-began)
			}
			if got, err := as("broker", "b"); err != nil || got.ErrorCode != 0 || got.HighWatermark < 50 {
				t.Errorf("a broker: %+v, %v", got, err)
			}
		})
	}
}

// TestRealJudgeDies: the real broker that vouches for all followers is killed. They log
// in again, and another one does.
func TestRealJudgeDies(t *testing.T) {
	b := passwords(t, "PLAIN", 3)
	var only atomic.Bool // the third one can be reached between brokers
	only.Store(true)
	others := b.k.Internal()[:2]
	b.cfg.Bootstrap = b.k.Bootstrap()
	b.cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if only.Load() && slices.Contains(others, address) {
			return nil, cluster.ErrUnreachable
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	us, p := b.start(t, 1, 2)
	both := func(context.Context) error {
		for _, f := range p.State().Followers {
			if f.Holds < p.State().Next {
				return fmt.Errorf("%+v", p.State())
			}
		}
		return nil
	}
	kafkatest.Eventually(t, time.Minute, both)
	before := us.accepted.Load()
	b.k.Kill(3)
	only.Store(false)
	began := time.Now()
	for next := int64(50); us.accepted.Load() < before+2; next++ { // until they have found out
		appendTo(t, p, next, next+1)
		if t.Context().Err() != nil || time.Since(began) > time.Minute {
			t.Fatal("nobody has logged in again")
		}
	}
	kafkatest.Eventually(t, time.Minute, both)
	t.Logf("both have logged in again and hold everything after %v", time.Since(began))
}

// TestRealFollowersWithCertificates: real brokers that show certificates copy from us; a
// certificate of nobody, of somebody else or of ourselves, though we have ClusterAction,
// gets no byte.
func TestRealFollowersWithCertificates(t *testing.T) {
	t.Parallel()
	b := certified(t)
	us, p := b.start(t, 1)
	as := func(certs ...tls.Certificate) (kmsg.FetchResponseTopicPartition, error) {
		t.Helper()
		conn, err := tls.Dial("tcp", b.at(us), b.as(certs...))
		if err != nil {
			return kmsg.FetchResponseTopicPartition{}, err
		}
		defer conn.Close()
		return raw(t, conn, p)
	}
	if got, err := as(); err == nil {
		t.Errorf("without a certificate: %+v", got)
	}
	for _, name := range []string{"reader", "mirror"} {
		if got, err := as(b.certificate(t, name)); err == nil {
			t.Errorf("with the certificate of %s: %+v", name, got)
		}
	}
	appendTo(t, p, 50, 60)
	transactionEnds(t, b.k, "mirrored")
	if got, err := as(b.certificate(t, "localhost")); err != nil || got.ErrorCode != 0 || got.HighWatermark < 50 {
		t.Errorf("a broker: %+v, %v", got, err)
	}
}

// transactionEnds: a producer that has registered a partition that we lead gets its next
// transaction, after the coordinator has had its markers done by us.
func transactionEnds(t *testing.T, k *kafkatest.Cluster, topic string) {
	t.Helper()
	ctx := within(t, time.Minute)
	host, text, _ := net.SplitHostPort(k.Addr(1))
	port, _ := strconv.Atoi(text)
	conn, err := wire.Dial(ctx, wire.Addr{Host: host, Port: int32(port)}, &wire.Config{TLS: k.TLSConfig(), SASL: segplain.Mechanism{Username: "broker", Password: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	do := func(req kmsg.Request, version int16) kmsg.Response {
		t.Helper()
		resp, err := conn.DoVersion(ctx, req, version)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	id := "registers " + topic
	var producer *kmsg.InitProducerIDResponse
	begins := func(ctx context.Context) error {
		find := kmsg.NewPtrFindCoordinatorRequest() // makes the coordinator's topic
		find.CoordinatorKeys, find.CoordinatorType = []string{id}, 1
		do(find, 4)
		begin := kmsg.NewPtrInitProducerIDRequest()
		begin.TransactionalID, begin.TransactionTimeoutMillis = &id, 60_000
		producer = do(begin, 4).(*kmsg.InitProducerIDResponse)
		return wire.CodeError(producer.ErrorCode)
	}
	kafkatest.Eventually(t, time.Minute, begins)
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	one := kmsg.NewAddPartitionsToTxnRequestTopic()
	one.Topic, one.Partitions = topic, []int32{0}
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Topics = id, producer.ProducerID, producer.ProducerEpoch, append(add.Topics, one)
	if code := do(add, 3).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("registering: %d", code)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch = id, producer.ProducerID, producer.ProducerEpoch
	if code := do(end, 3).(*kmsg.EndTxnResponse).ErrorCode; code != 0 {
		t.Fatalf("ending: %d", code)
	}
	kafkatest.Eventually(t, 30*time.Second, begins)
}
