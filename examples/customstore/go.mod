module github.com/clustermirror/mirror/examples/customstore

go 1.26.0

require (
	github.com/clustermirror/mirror v0.0.0
	go.etcd.io/bbolt v1.4.3
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.29.0 // indirect
)

replace github.com/clustermirror/mirror => ../..
