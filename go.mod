module github.com/clustermirror/mirror

go 1.26
