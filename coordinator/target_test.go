package coordinator

import "testing"

// TestTargetRules has a case for each rule of the decision, numbered as there.
func TestTargetRules(t *testing.T) {
	tests := []struct {
		name string
		rec  Record
		want State
	}{
		{"1 stopped is there", Record{Desired: WantStopped, State: StateStopped}, StateStopped},
		{"1 nothing was appended", Record{Desired: WantStopped, State: StateUnknown}, StateStopped},
		{"1 something was appended", Record{Desired: WantStopped, State: StateUnknown, Appended: true}, StateStopping},
		{"1 from failed", Record{Desired: WantStopped, State: StateFailed}, StateStopping},
		{"1 from paused", Record{Desired: WantStopped, State: StatePaused}, StateStopping},
		{"1 from a cut", Record{Desired: WantStopped, State: StateULERecovery, Cut: 3}, StateStopping},
		{"1 again", Record{Desired: WantStopped, State: StateStopping}, StateStopping},
		{"2 paused is there", Record{Desired: WantPaused, State: StatePaused}, StatePaused},
		{"2 from mirroring", Record{Desired: WantPaused, State: StateMirroring}, StatePausing},
		{"2 from failed", Record{Desired: WantPaused, State: StateFailed}, StatePausing},
		{"2 not while a stop is unfinished", Record{Desired: WantPaused, State: StateStopping}, StateStopping},
		{"3 failed stays", Record{Desired: WantMirroring, State: StateFailed}, StateFailed},
		{"4 resumed", Record{Desired: WantMirroring, State: StatePaused, Cut: noCut, Aligned: true}, StateMirroring},
		{"4 resumed with a cut owed", Record{Desired: WantMirroring, State: StatePaused, Cut: 0, Aligned: true}, StateULERecovery},
		{"4 resumed and never aligned", Record{Desired: WantMirroring, State: StatePaused, Cut: noCut}, StateLogAlignment},
		{"5 unknown", Record{Desired: WantMirroring, State: StateUnknown}, StateLogAlignment},
		{"5 stopped", Record{Desired: WantMirroring, State: StateStopped}, StateLogAlignment},
		{"6 mirroring", Record{Desired: WantMirroring, State: StateMirroring}, StateMirroring},
		{"6 pausing", Record{Desired: WantMirroring, State: StatePausing}, StatePausing},
		{"6 stopping", Record{Desired: WantMirroring, State: StateStopping}, StateStopping},
		{"6 cut", Record{Desired: WantMirroring, State: StateULERecovery, Cut: 9}, StateULERecovery},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := target(tt.rec); got != tt.want {
				t.Errorf("target = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRetryTarget(t *testing.T) {
	tests := []struct {
		previous State
		desired  Desired
		cut      int64
		want     State
	}{
		{StateUnknown, WantMirroring, noCut, StateLogAlignment},
		{StateLogAlignment, WantMirroring, noCut, StateLogAlignment},
		{StateMirroring, WantMirroring, noCut, StateLogAlignment},
		{StateEpochFencing, WantMirroring, noCut, StateEpochFencing},
		{StateULERecovery, WantMirroring, 4, StateULERecovery},
		{StatePaused, WantMirroring, noCut, StateLogAlignment},
		{StatePaused, WantMirroring, 4, StateULERecovery},
		{StatePausing, WantPaused, noCut, StatePausing},
		{StateMirroring, WantPaused, noCut, StatePausing},
		{StateMirroring, WantStopped, noCut, StateStopping},
		{StateStopping, WantStopped, noCut, StateStopping},
		{StateStopping, WantMirroring, noCut, StateStopping},
	}
	for _, tt := range tests {
		t.Run(string(tt.previous)+" wanted "+string(tt.desired), func(t *testing.T) {
			rec := Record{State: StateFailed, Previous: tt.previous, Desired: tt.desired, Cut: tt.cut}
			if got := retryTarget(rec); got != tt.want {
				t.Errorf("retryTarget = %s, want %s", got, tt.want)
			}
		})
	}
}
