package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"sync"

	"github.com/clustermirror/mirror/cluster"
)

// platform keeps topics in a folder: one file tells what there is, and each
// partition has a journal. It stands for whatever a host has of its own.
type platform struct {
	dir string

	mu       sync.Mutex
	state    state
	journals map[cluster.Partition]*partition
}

// state is what is written to platform.json.
type state struct {
	ID     string                                  `json:"id"`
	Topics map[string]cluster.Topic                `json:"topics"`
	Groups map[string]map[string]cluster.Committed `json:"groups"` // by name, then by partition
}

// openPlatform opens what a folder holds, or begins with nothing.
func openPlatform(dir, id string) (*platform, error) {
	p := &platform{dir: dir, journals: map[cluster.Partition]*partition{}}
	p.state = state{ID: id, Topics: map[string]cluster.Topic{}, Groups: map[string]map[string]cluster.Committed{}}
	b, err := os.ReadFile(filepath.Join(dir, "platform.json"))
	if err == nil {
		err = json.Unmarshal(b, &p.state)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, t := range p.state.Topics {
		if err := p.openTopic(t); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Close closes the files.
func (p *platform) Close() error {
	var errs []error
	for _, part := range p.journals {
		errs = append(errs, part.journal.file.Close())
	}
	return errors.Join(errs...)
}

func (p *platform) openTopic(t cluster.Topic) error {
	dir := filepath.Join(p.dir, t.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for n := range t.Partitions {
		at := cluster.Partition{Topic: t.Name, Partition: n}
		if p.journals[at] != nil {
			continue
		}
		j, err := openJournal(filepath.Join(dir, strconv.Itoa(int(n))))
		if err != nil {
			return err
		}
		p.journals[at] = newPartition(at, t.ID, j)
	}
	return nil
}

// setTopic makes or grows a topic.
func (p *platform) setTopic(t cluster.Topic) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, there := p.state.Topics[t.Name]
	if there {
		t.ID = was.ID
		t.Partitions = max(t.Partitions, was.Partitions)
	} else {
		n := len(p.state.Topics) + 1
		t.ID = cluster.TopicID{14: byte(n >> 8), 15: byte(n)}
	}
	if err := p.openTopic(t); err != nil {
		return err
	}
	p.state.Topics[t.Name] = t
	return p.save()
}

// save writes the state down, whole or not at all. The lock is held.
func (p *platform) save() error {
	b, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	name := filepath.Join(p.dir, "platform.json")
	if err := os.WriteFile(name+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// topics are all, by name.
func (p *platform) topics() []cluster.Topic {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []cluster.Topic
	for _, t := range p.state.Topics {
		all = append(all, t)
	}
	sort.Slice(all, func(i, k int) bool { return all[i].Name < all[k].Name })
	return all
}

// partition is one by its name.
func (p *platform) partition(at cluster.Partition) (*partition, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if part := p.journals[at]; part != nil {
		return part, nil
	}
	return nil, fmt.Errorf("%v: %w", at, cluster.ErrUnknownTopic)
}

// commit notes offsets of a group.
func (p *platform) commit(group string, offsets []cluster.Committed) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.Groups[group] == nil {
		p.state.Groups[group] = map[string]cluster.Committed{}
	}
	for _, o := range offsets {
		p.state.Groups[group][o.Partition.String()] = o
	}
	return p.save()
}

// groups are the names of all groups.
func (p *platform) groups() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.state.Groups {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// committed are a group's offsets by partition.
func (p *platform) committed(group string) (all []cluster.Committed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.state.Groups[group] {
		all = append(all, o)
	}
	sort.Slice(all, func(i, k int) bool { return all[i].Partition.Compare(all[k].Partition) < 0 })
	return all
}
