package kafka

func racer(args []string) error { return nil }
