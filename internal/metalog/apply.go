package metalog

import (
	"fmt"
	"maps"

	"github.com/clustermirror/mirror/cluster"
)

// Apply gives the image after one record, and notes in d what it touched (d may
// not be nil). Work is independent of the size of the image. Transaction records
// change nothing here. An error means that the record contradicts the image (a
// change of what is not there); the image is then as it was, which is also what
// a broker makes of it.
func (i Image) Apply(r Record, d *Delta) (Image, error) {
	switch r := r.(type) {
	case RegisterBroker:
		put(&d.Brokers, r.Broker.ID)
		i.brokers = i.brokers.with(brokerKey(r.Broker.ID), &r.Broker)
	case UnregisterBroker:
		put(&d.Brokers, r.ID)
		i.brokers = i.brokers.without(brokerKey(r.ID))
	case ChangeBroker:
		return i.changeBroker(r, d)
	case NewTopic:
		put(&d.Topics, r.ID)
		i.topics = i.topics.with(topicKey(r.ID), &Topic{Name: r.Name, ID: r.ID})
		i.names = i.names.with(nameKey(r.Name), r.ID)
	case NewPartition:
		return i.newPartition(r, d)
	case ChangePartition:
		return i.changePartition(r, d)
	case RemoveTopic:
		return i.removeTopic(r.ID, d)
	case ClearELR:
		return i.clearELR(r.Topic, d), nil
	case SetConfig:
		return i.setConfig(r, d), nil
	case SetFeature:
		i.features = i.features.with(nameKey(r.Name), r.Level)
	case ProducerIDs:
		i.NextProducerID = r.Next
	case SetCredential:
		i.credentials = i.credentials.with(r.ID, r.Credential)
	case RemoveCredential:
		i.credentials = i.credentials.without(r.ID)
	}
	return i, nil
}

func (i Image) changeBroker(r ChangeBroker, d *Delta) (Image, error) {
	old, ok := i.Broker(r.ID)
	if !ok {
		return i, fmt.Errorf("change of broker %d, which is not registered", r.ID)
	}
	if old.Epoch != r.Epoch {
		return i, fmt.Errorf("change of broker %d in epoch %d, registered is %d", r.ID, r.Epoch, old.Epoch)
	}
	b := *old
	if r.Fenced != nil {
		b.Fenced = *r.Fenced
	}
	if r.InControlledShutdown != nil {
		b.InControlledShutdown = *r.InControlledShutdown
	}
	if r.Directories != nil {
		b.Directories = r.Directories
	}
	if r.Cordoned != nil {
		b.Cordoned = r.Cordoned
	}
	put(&d.Brokers, r.ID)
	i.brokers = i.brokers.with(brokerKey(r.ID), &b)
	return i, nil
}

func (i Image) newPartition(r NewPartition, d *Delta) (Image, error) {
	t, ok := i.Topic(r.ID.Topic)
	if !ok {
		return i, fmt.Errorf("partition %d of topic %v, which does not exist", r.ID.Partition, r.ID.Topic)
	}
	if r.ID.Partition >= t.Partitions {
		more := *t
		more.Partitions = r.ID.Partition + 1
		put(&d.Topics, t.ID)
		i.topics = i.topics.with(topicKey(t.ID), &more)
	}
	put(&d.Partitions, r.ID)
	i.partitions = i.partitions.with(r.ID, &r.Partition)
	return i, nil
}

// changePartition is PartitionRegistration.merge of Kafka.
func (i Image) changePartition(r ChangePartition, d *Delta) (Image, error) {
	old, ok := i.Partition(r.ID)
	if !ok {
		return i, fmt.Errorf("change of partition %d of topic %v, which does not exist", r.ID.Partition, r.ID.Topic)
	}
	p := *old
	p.PartitionEpoch++
	if r.Leader != nil { // also when it is the same leader again
		p.Leader = *r.Leader
		p.LeaderEpoch++
	}
	if r.Recovering != nil {
		p.Recovering = *r.Recovering
	}
	for _, c := range []struct {
		to   *[]int32
		from []int32
	}{
		{&p.Replicas, r.Replicas}, {&p.ISR, r.ISR}, {&p.Removing, r.Removing}, {&p.Adding, r.Adding},
		{&p.ELR, r.ELR}, {&p.LastKnownELR, r.LastKnownELR},
	} {
		if c.from != nil {
			*c.to = c.from
		}
	}
	if r.Directories != nil {
		p.Directories = r.Directories
	}
	put(&d.Partitions, r.ID)
	i.partitions = i.partitions.with(r.ID, &p)
	return i, nil
}

func (i Image) removeTopic(id cluster.TopicID, d *Delta) (Image, error) {
	t, ok := i.Topic(id)
	if !ok {
		return i, fmt.Errorf("removal of topic %v, which does not exist", id)
	}
	put(&d.Topics, id)
	i.topics = i.topics.without(topicKey(id))
	if now, _ := i.names.get(nameKey(t.Name)); now == id {
		i.names = i.names.without(nameKey(t.Name))
	}
	for n := range t.Partitions {
		p := PartitionID{Topic: id, Partition: n}
		put(&d.Partitions, p)
		i.partitions = i.partitions.without(p)
	}
	resource := Resource{Kind: TopicResource, Name: t.Name}
	put(&d.Configs, resource)
	i.configs = i.configs.without(resource)
	return i, nil
}

// clearELR is a change of every partition of the topic that has something to
// clear, partition epoch included (TopicDelta.maybeClearElr of Kafka).
func (i Image) clearELR(name string, d *Delta) Image {
	clearTopic := func(t *Topic) {
		for n := range t.Partitions {
			id := PartitionID{Topic: t.ID, Partition: n}
			if p, ok := i.Partition(id); ok && len(p.ELR)+len(p.LastKnownELR) > 0 {
				i, _ = i.changePartition(ChangePartition{ID: id, ELR: []int32{}, LastKnownELR: []int32{}}, d)
			}
		}
	}
	if name != "" {
		if t, ok := i.TopicNamed(name); ok {
			clearTopic(t)
		}
		return i
	}
	for t := range i.Topics() {
		clearTopic(t)
	}
	return i
}

// keptOfBrokers are the keys of brokers' configurations that are kept. Others are
// of no use here, and some of them are passwords.
var keptOfBrokers = map[string]bool{
	"min.insync.replicas": true, "unclean.leader.election.enable": true, "default.replication.factor": true,
	"cordoned.log.dirs": true,
}

// wanted says whether a configuration is kept.
func (r SetConfig) wanted() bool {
	return r.Resource.Kind == TopicResource || r.Resource.Kind == BrokerResource && keptOfBrokers[r.Key]
}

func (i Image) setConfig(r SetConfig, d *Delta) Image {
	if !r.wanted() {
		return i
	}
	set := maps.Clone(i.Config(r.Resource))
	if set == nil {
		set = make(map[string]string, 1)
	}
	if r.Value == nil {
		delete(set, r.Key)
	} else {
		set[r.Key] = *r.Value
	}
	put(&d.Configs, r.Resource)
	if len(set) == 0 {
		i.configs = i.configs.without(r.Resource)
	} else {
		i.configs = i.configs.with(r.Resource, set)
	}
	return i
}
