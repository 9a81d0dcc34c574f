package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/topics"
)

// ownedNotes keeps what is a mirror's doing among its notes, under "settings:" and the
// topic's name.
type ownedNotes struct {
	notes  coordinator.Notes
	mirror string
}

const settingsNote = "settings:"

// ownVersion is the version of the stored form.
const ownVersion = 1

type storedOwn struct {
	Version int `json:"v"`
	topics.Own
}

func (n ownedNotes) Load(ctx context.Context) (map[string]topics.Own, error) {
	all, err := n.notes.Notes(ctx, n.mirror)
	if err != nil {
		return nil, err
	}
	out := map[string]topics.Own{}
	for key, note := range all {
		name, ours := strings.CutPrefix(key, settingsNote)
		if !ours {
			continue
		}
		var s storedOwn
		err := json.Unmarshal(note, &s)
		if err == nil && s.Version != ownVersion {
			err = fmt.Errorf("version %d is not known (this library writes %d)", s.Version, ownVersion)
		}
		if err != nil {
			return nil, fmt.Errorf("note %q: %w", key, err)
		}
		out[name] = s.Own
	}
	return out, nil
}

func (n ownedNotes) Swap(ctx context.Context, was, now map[string]topics.Own) (refused []string, err error) {
	keys, err := n.notes.SwapNotes(ctx, n.mirror, ownNotes(was), ownNotes(now))
	for _, key := range keys {
		refused = append(refused, strings.TrimPrefix(key, settingsNote))
	}
	return refused, err
}

func ownNotes(all map[string]topics.Own) map[string][]byte {
	out := make(map[string][]byte, len(all))
	for name, own := range all {
		out[settingsNote+name] = nil
		if !own.IsZero() {
			out[settingsNote+name], _ = json.Marshal(storedOwn{ownVersion, own}) // of texts: never fails
		}
	}
	return out
}
