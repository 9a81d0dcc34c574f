package kafkatest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DefaultVersion is the Kafka release that [Start] takes when Options name none.
const DefaultVersion = "4.4.0"

// artifact is one Maven coordinate.
type artifact struct{ group, name, version string }

// release says how one Kafka release is fetched and started. All differences
// between releases stand in this table, none in the code that starts them.
type release struct {
	artifacts []artifact
	// logging is the file that lets only warnings through, and the JVM flag
	// that names it (followed by the path).
	logFile, logFlag, logConfig string
	// consumer is the console consumer's class; its names for its options were
	// changed in 4.2.
	consumer                          string
	formatterFlag, consumerConfigFlag string
	// reader is the release whose console consumer reads this one. Default: its own.
	reader string
	// zookeeper: the brokers need one, and are no controllers' voters.
	zookeeper bool
	// jksOnly: no certificates in PEM files (before 2.7).
	jksOnly bool
}

var log4j2 = release{
	logFile:            "log4j2.xml",
	logFlag:            "-Dlog4j2.configurationFile=",
	logConfig:          log4j2Config,
	consumer:           toolsConsumer,
	formatterFlag:      "--formatter-property",
	consumerConfigFlag: "--command-config",
}

var reload4j = release{
	logFile:            "log4j.properties",
	logFlag:            "-Dlog4j.configuration=file:",
	logConfig:          reload4jConfig,
	consumer:           toolsConsumer,
	formatterFlag:      "--property",
	consumerConfigFlag: "--consumer.config",
}

const toolsConsumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"

// releases holds every version that [Start] knows.
var releases = map[string]release{
	"4.4.0": log4j2.with(
		artifact{"org.apache.kafka", "kafka_2.13", "4.4.0"},
		artifact{"org.apache.kafka", "kafka-tools", "4.4.0"},
		artifact{"org.apache.logging.log4j", "log4j-core", "2.24.3"},
		artifact{"org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"},
	),
	"3.9.1": reload4j.with(
		artifact{"org.apache.kafka", "kafka_2.13", "3.9.1"},
		artifact{"org.apache.kafka", "kafka-tools", "3.9.1"},
	),
	// The first release that can tell topics apart by id, but not in a fetch.
	"2.8.2": reload4j.old("kafka.tools.ConsoleConsumer", "").with(
		artifact{"org.apache.kafka", "kafka_2.13", "2.8.2"},
		artifact{"ch.qos.reload4j", "reload4j", "1.2.19"},
		artifact{"org.slf4j", "slf4j-reload4j", "1.7.36"},
	),
	// The oldest that a mirror reads from. Its own ZooKeeper client, 3.4.13, fails
	// on Java 17, and its console consumer shows no offsets.
	"2.1.1": reload4j.old("", DefaultVersion).jks().with(
		artifact{"org.apache.zookeeper", "zookeeper", "3.5.9"},
		artifact{"org.apache.kafka", "kafka_2.12", "2.1.1"},
	),
}

func (r release) old(consumer, reader string) release {
	r.zookeeper, r.consumer, r.reader = true, consumer, reader
	return r
}

func (r release) jks() release {
	r.jksOnly = true
	return r
}

func (r release) with(a ...artifact) release {
	r.artifacts = a
	return r
}

// Versions returns the Kafka releases that [Start] knows, sorted.
func Versions() []string { return slices.Sorted(maps.Keys(releases)) }

// pom returns a Maven project whose runtime dependencies are the release.
func (r release) pom() string {
	var b strings.Builder
	b.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
		`<groupId>kafkatest</groupId><artifactId>kafkatest</artifactId><version>1</version><dependencies>` + "\n")
	for _, a := range r.artifacts {
		fmt.Fprintf(&b, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n",
			a.group, a.name, a.version)
	}
	b.WriteString("</dependencies></project>\n")
	return b.String()
}

const log4j2Config = `<Configuration status="ERROR"><Appenders>
<File name="file" fileName="${sys:kafkatest.log}"><PatternLayout pattern="%d{ISO8601} %p %m (%c)%n"/></File>
</Appenders><Loggers><Root level="WARN"><AppenderRef ref="file"/></Root></Loggers></Configuration>
`

const reload4jConfig = `log4j.rootLogger=WARN, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File=${kafkatest.log}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d{ISO8601} %p %m (%c)%n
`
