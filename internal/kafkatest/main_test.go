package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Child("echo", func(args []string) error {
		fmt.Println("args", strings.Join(args, " "))
		return nil
	})
	Child("fail", func([]string) error { return errors.New("wrong on purpose") })
	Child("hang", func([]string) error {
		fmt.Println("pid", os.Getpid())
		<-make(chan struct{})
		return nil
	})
	Child("parent", childParent)
	Child("count", func([]string) error {
		for i := 0; ; i++ {
			fmt.Println("tick", i)
			<-time.After(10 * time.Millisecond)
		}
	})
	goleak.VerifyTestMain(Suite{m})
}
