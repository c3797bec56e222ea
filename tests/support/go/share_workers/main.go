// Consumers of a share group with franz-go, one per goroutine, until stdin ends. Each prints two
// lines for a record: "said" before it acknowledges it, and "confirmed" after the broker has
// confirmed that; then what it said, partition, offset, count of deliveries.
//
//	share_workers BOOTSTRAP GROUP TOPIC COUNT MODE RELEASED ACQUIRE
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	pollTime  = 200 * time.Millisecond
	flushTime = 30 * time.Second
)

var (
	stopped  atomic.Bool
	printing sync.Mutex
	out      = bufio.NewWriter(os.Stdout)
)

type worker struct {
	client   *kgo.Client
	explicit bool
	released int
	chance   *rand.Rand
	// Results of acknowledgements since the last flush: partitions with a result, and whether
	// none of them was an error.
	mutex   sync.Mutex
	results map[int32]bool
}

type said struct {
	name   string
	record *kgo.Record
}

func main() {
	count, released := number(os.Args[4]), number(os.Args[6])
	var workers sync.WaitGroup
	for seed := range count {
		workers.Add(1)
		go func() {
			defer workers.Done()
			newWorker(os.Args[1], os.Args[2], os.Args[3], os.Args[5], released, os.Args[7], seed).work()
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stopped.Store(true)
	workers.Wait()
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return found
}

func newWorker(bootstrap, group, topic, mode string, released int, acquire string, seed int) *worker {
	one := &worker{
		explicit: mode == "explicit",
		released: released,
		chance:   rand.New(rand.NewSource(int64(seed))),
		results:  map[int32]bool{},
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ShareGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ShareMaxRecords(20),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { one.note(results) }),
	}
	if acquire == "record_limit" {
		options = append(options, kgo.ShareMaxRecordsStrict())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	one.client = client
	return one
}

func (one *worker) work() {
	var waiting []said
	for !stopped.Load() {
		// What was not acknowledged by now is accepted by this.
		records := one.poll()
		if !one.explicit {
			one.confirm(waiting)
		}
		waiting = one.say(records)
		if one.explicit {
			one.confirm(waiting)
		}
	}
	one.client.Close()
}

func (one *worker) poll() []*kgo.Record {
	ctx, cancel := context.WithTimeout(context.Background(), pollTime)
	defer cancel()
	return one.client.PollRecords(ctx, 20).Records()
}

func (one *worker) say(records []*kgo.Record) []said {
	var found []said
	for _, record := range records {
		name, status := "ACCEPT", kgo.AckAccept
		if one.explicit && one.chance.Intn(100) < one.released {
			name, status = "RELEASE", kgo.AckRelease
		}
		found = append(found, said{name, record})
		if one.explicit {
			record.Ack(status)
		}
	}
	tell("said", found)
	return found
}

// confirm waits for the results of all acknowledgements that are under way.
func (one *worker) confirm(waiting []said) {
	if len(waiting) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	err := one.client.FlushAcks(ctx)
	one.mutex.Lock()
	results := one.results
	one.results = map[int32]bool{}
	one.mutex.Unlock()
	if err != nil {
		return
	}
	var confirmed []said
	for _, each := range waiting {
		if results[each.record.Partition] {
			confirmed = append(confirmed, each)
		}
	}
	tell("confirmed", confirmed)
}

func (one *worker) note(results kgo.ShareAckResults) {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	for _, result := range results {
		before, known := one.results[result.Partition]
		one.results[result.Partition] = (before || !known) && result.Err == nil
	}
}

func tell(what string, lines []said) {
	printing.Lock()
	defer printing.Unlock()
	for _, each := range lines {
		record := each.record
		fmt.Fprintln(out, what, each.name, record.Partition, record.Offset, record.DeliveryCount())
	}
	out.Flush()
}
