package broker

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// offered are the features that a real broker offers: ours have to be the same,
// or the controller refuses us. Versions below 4 of ApiVersions leave out those
// with a minimum of 0.
func offered(ctx context.Context, brokers *wire.Client) ([]kmsg.BrokerRegistrationRequestFeature, error) {
	conn, err := brokers.Any(ctx)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "clustermirror", "1"
	resp, err := conn.DoVersion(ctx, req, 4)
	if err != nil {
		return nil, err
	}
	answer := resp.(*kmsg.ApiVersionsResponse)
	if err := wire.CodeError(answer.ErrorCode); err != nil {
		return nil, fmt.Errorf("ApiVersions v4 at %v: %w", conn.Addr(), err)
	}
	var out []kmsg.BrokerRegistrationRequestFeature
	for _, f := range answer.SupportedFeatures {
		one := kmsg.NewBrokerRegistrationRequestFeature()
		one.Name, one.MinSupportedVersion, one.MaxSupportedVersion = f.Name, f.MinVersion, f.MaxVersion
		out = append(out, one)
	}
	return out, nil
}

// neverSeen is what a controller takes for the epoch of a broker that it does not know
// (ClusterControlManager.registerBroker).
const neverSeen = -2

// epochBefore is the broker epoch that we have had, as the log has it. With it a controller
// takes the end of our session for a clean one, whatever incarnation comes: we remain
// eligible to lead (KIP-966). It is clean, as we have nothing that could have been lost.
func epochBefore(image metalog.Image, id Identity) int64 {
	if b, ok := image.Broker(id.Broker); ok {
		return b.Epoch
	}
	return neverSeen
}

// registration is the request that makes us a broker.
func registration(id Identity, cfg Config, clusterID string, before int64, features []kmsg.BrokerRegistrationRequestFeature) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID = id.Broker, clusterID, id.Incarnation
	req.Features, req.LogDirs, req.PreviousBrokerEpoch = features, [][16]byte{id.Directory}, before
	if cfg.Rack != "" {
		req.Rack = &cfg.Rack
	}
	for _, l := range cfg.Listeners {
		one := kmsg.NewBrokerRegistrationRequestListener()
		one.Name, one.Host, one.Port, one.SecurityProtocol = l.Name, l.Host, l.Port, l.Protocol
		req.Listeners = append(req.Listeners, one)
	}
	return req
}

// asRegistered gives the epoch of a registration that stands as it would be made now. A new
// one would change nothing but that nothing is cordoned until the next heartbeat. It is pure.
func asRegistered(i metalog.Image, req *kmsg.BrokerRegistrationRequest) (epoch int64, ok bool) {
	b, ok := i.Broker(req.BrokerID)
	if !ok || b.Incarnation != metalog.UUID(req.IncarnationID) || b.InControlledShutdown {
		return 0, false
	}
	rack := ""
	if req.Rack != nil {
		rack = *req.Rack
	}
	var dirs []metalog.UUID
	for _, d := range req.LogDirs {
		dirs = append(dirs, d)
	}
	var listeners []metalog.Listener
	for _, l := range req.Listeners {
		listeners = append(listeners, metalog.Listener{Name: l.Name, Host: l.Host, Port: l.Port, Protocol: l.SecurityProtocol})
	}
	var features []metalog.Feature
	for _, f := range req.Features {
		features = append(features, metalog.Feature{Name: f.Name, Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion})
	}
	return b.Epoch, rack == b.Rack && slices.Equal(dirs, b.Directories) && sameSet(listeners, b.Listeners) && sameSet(features, b.Features)
}

// heartbeat is the request that keeps us one. The offset is the last one in our
// image, as it is: a controller lets nobody in who has not seen his own
// registration, and waits with another broker's shutdown until all have seen it.
func heartbeat(id Identity, epoch int64, image metalog.Image, w wishes) *kmsg.BrokerHeartbeatRequest {
	var cordoned []metalog.UUID
	if w.cordoned {
		cordoned = append(cordoned, id.Directory)
	}
	return beatOf(id.Broker, epoch, image.Offset-1, cordoned, w)
}

// beatOf is a heartbeat of any broker.
func beatOf(broker int32, epoch, offset int64, cordoned []metalog.UUID, w wishes) *kmsg.BrokerHeartbeatRequest {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = broker, epoch, offset
	req.WantFence, req.WantShutdown = w.fenced, w.shutdown
	req.CordonedLogDirs = [][16]byte{} // null would mean that we do not know yet
	for _, dir := range cordoned {
		req.CordonedLogDirs = append(req.CordonedLogDirs, dir)
	}
	return req
}

func heartbeatError(resp kmsg.Response) error {
	return wire.CodeError(resp.(*kmsg.BrokerHeartbeatResponse).ErrorCode)
}

// cordonVersion is the first version of BrokerHeartbeat that can cordon (4.3).
// An older controller closes the connection on it.
const cordonVersion = 2
