package broker

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/mirror/internal/metalog"
	"github.com/clustermirror/mirror/internal/wire"
)

// abilities are the features that we register: each at the levels that some other broker of
// the cluster can, so that it is never us who hold up an upgrade of them, nor two mirrors'
// members that wait for each other. A level must be one that all registered brokers can
// (FeatureControlManager); the real ones answer for themselves. Of metadata.version no level
// is among them above most, as we could not read the log then. It is pure.
func abilities(i metalog.Image, self int32, most int16) (out []metalog.Feature) {
	widest := make(map[string]metalog.Feature)
	for b := range i.Brokers() {
		if b.ID == self {
			continue
		}
		for _, f := range b.Features {
			w, ok := widest[f.Name]
			if !ok {
				w = f
			}
			w.Min, w.Max = min(w.Min, f.Min), max(w.Max, f.Max)
			widest[f.Name] = w
		}
	}
	for name, f := range widest {
		if name == metadataVersion {
			f.Max = min(f.Max, most)
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b metalog.Feature) int { return strings.Compare(a.Name, b.Name) })
	return out
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
func registration(id Identity, cfg Config, clusterID string, before int64, features []metalog.Feature) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID = id.Broker, clusterID, id.Incarnation
	req.LogDirs, req.PreviousBrokerEpoch = [][16]byte{id.Directory}, before
	for _, f := range features {
		one := kmsg.NewBrokerRegistrationRequestFeature()
		one.Name, one.MinSupportedVersion, one.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, one)
	}
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
// An older controller closes the connection on it. A newer one passes cordoned
// directories over as long as metadata.version is below cordonLevel (4.3-IV0).
const (
	cordonVersion = 2
	cordonLevel   = 30
)
