package coordinator

import "slices"

// State is where one partition is now. It is stored by name.
type State string

// The states of KIP-1279. StateUnknown is the one before the first.
const (
	StateUnknown      State = "UNKNOWN"
	StateLogAlignment State = "LOG_ALIGNMENT"
	StateEpochFencing State = "EPOCH_FENCING"
	StateULERecovery  State = "ULE_RECOVERY"
	StateMirroring    State = "MIRRORING"
	StatePausing      State = "PAUSING"
	StatePaused       State = "PAUSED"
	StateStopping     State = "STOPPING"
	StateStopped      State = "STOPPED"
	StateFailed       State = "FAILED"
)

// Desired is what the operator wants of a topic. It is stored by name.
type Desired string

// What can be wanted of a topic.
const (
	WantMirroring Desired = "MIRRORING"
	WantPaused    Desired = "PAUSED"
	WantStopped   Desired = "STOPPED"
)

// Valid reports whether d is one of the three.
func (d Desired) Valid() bool { return d == WantMirroring || d == WantPaused || d == WantStopped }

// transition is one row of the table: a state, where it may be entered from,
// and the side effect that belongs to it.
type transition struct {
	to     State
	from   []State
	effect EffectKind // "" when being there is all there is to do
}

// table is the state machine. The same state is always legal as well, and
// StateFailed is legal from every state.
//
// Four arrows go beyond the KIP. A pause from UNKNOWN lets a topic be added
// without being copied yet. UNKNOWN to STOPPED is the stop of a topic of which
// nothing was ever appended: there is nothing to fence. A pause may interrupt
// an alignment or a cut; what was interrupted has to be done before fetching
// goes on (invariants I2 and I8), so PAUSED leads back there too.
var table = []transition{
	{to: StateUnknown},
	{to: StateLogAlignment, effect: EffectAlign,
		from: []State{StateUnknown, StateStopped, StateFailed, StatePaused}},
	{to: StateEpochFencing, effect: EffectRaiseEpoch,
		from: []State{StateMirroring, StateFailed}},
	{to: StateULERecovery, effect: EffectCut,
		from: []State{StateMirroring, StateLogAlignment, StateFailed, StatePaused}},
	{to: StateMirroring, effect: EffectFetch,
		from: []State{StateLogAlignment, StateEpochFencing, StateULERecovery, StatePaused, StateFailed}},
	{to: StatePausing, effect: EffectDrain,
		from: []State{StateUnknown, StateLogAlignment, StateEpochFencing, StateULERecovery, StateMirroring, StateFailed}},
	{to: StatePaused,
		from: []State{StatePausing}},
	{to: StateStopping, effect: EffectStop,
		from: []State{StateUnknown, StateLogAlignment, StateEpochFencing, StateULERecovery, StateMirroring,
			StatePausing, StatePaused, StateFailed}},
	{to: StateStopped,
		from: []State{StateStopping, StateUnknown}},
	{to: StateFailed,
		from: []State{StateUnknown, StateLogAlignment, StateEpochFencing, StateULERecovery, StateMirroring,
			StatePausing, StatePaused, StateStopping, StateStopped}},
}

func row(s State) (transition, bool) {
	i := slices.IndexFunc(table, func(t transition) bool { return t.to == s })
	if i < 0 {
		return transition{}, false
	}
	return table[i], true
}

// Valid reports whether s is a state of the table.
func (s State) Valid() bool {
	_, ok := row(s)
	return ok
}

// States returns all states in the order of the table.
func States() []State {
	all := make([]State, len(table))
	for i, t := range table {
		all[i] = t.to
	}
	return all
}

// Legal reports whether a partition may go from one state to another. A state
// that is not in the table is legal nowhere.
func Legal(from, to State) bool {
	t, ok := row(to)
	if !ok || !from.Valid() {
		return false
	}
	return from == to || slices.Contains(t.from, from)
}
