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
	// The console consumer's names for its options, renamed in 4.2.
	formatterFlag, consumerConfigFlag string
}

var log4j2 = release{
	logFile:            "log4j2.xml",
	logFlag:            "-Dlog4j2.configurationFile=",
	logConfig:          log4j2Config,
	formatterFlag:      "--formatter-property",
	consumerConfigFlag: "--command-config",
}

var reload4j = release{
	logFile:            "log4j.properties",
	logFlag:            "-Dlog4j.configuration=file:",
	logConfig:          reload4jConfig,
	formatterFlag:      "--property",
	consumerConfigFlag: "--consumer.config",
}

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
