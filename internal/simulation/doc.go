// Package simulation runs the real engine on clusters in memory through random
// schedules of faults, and checks after each step that what the invariants promise
// (docs/design.md section 5) is so. One schedule is one bubble of virtual time: a
// minute costs microseconds.
//
// A schedule is a list of steps, each a line of text ([Step]); testdata holds
// schedules written by hand and such as once found an error. The engine's opponent
// is the oracle: it knows nothing of how the engine works, only what a log may hold.
//
//	go test ./internal/simulation -schedules 1000000 -seed 7
//	go test ./internal/simulation -run TestReplay -replay testdata/found.txt
//
// docs/decisions/0009-simulation.md says why it is made like this.
package simulation
