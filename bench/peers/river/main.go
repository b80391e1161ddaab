// River as a program of the benchmark: it reads what to do from its standard input and says
// how far it is in lines of JSON, as `bench/lines.py` describes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// What a run can hold at most; pages that no job touches cost nothing.
const ledgerSize = 50_000_000

type spec struct {
	Mode        string  `json:"mode"`
	DSN         string  `json:"dsn"`
	Jobs        int64   `json:"jobs"`
	Payload     int     `json:"payload"`
	Seconds     float64 `json:"seconds"`
	Depth       int64   `json:"depth"`
	SubmitBatch int64   `json:"submit_batch"`
	Submitters  int     `json:"submitters"`
	Workers     int     `json:"workers"`
	Connections int32   `json:"connections"` // 0: the pool's default
	CooldownMs  int64   `json:"cooldown_ms"` // 0: River's default, as for the next
	PollMs      int64   `json:"poll_ms"`
}

type noop struct {
	Number int64  `json:"number"`
	Filler string `json:"filler"`
}

func (noop) Kind() string { return "noop" }

type bench struct {
	river.WorkerDefaults[noop]
	spec                 spec
	pool                 *pgxpool.Pool
	client               *river.Client[pgx.Tx]
	filler               string
	runs                 []atomic.Int32 // by number of the job
	next                 atomic.Int64   // the first number not given out
	submitted, completed atomic.Int64   // completed: worked, which is stored a little later
}

func (b *bench) Work(_ context.Context, job *river.Job[noop]) error {
	b.runs[job.Args.Number].Add(1)
	b.completed.Add(1)
	return nil
}

func main() {
	ctx := context.Background()
	input := bufio.NewReader(os.Stdin)
	b := &bench{runs: make([]atomic.Int32, ledgerSize)}
	must(json.Unmarshal([]byte(word(input)), &b.spec))
	b.open(ctx)
	if b.spec.Mode == "burn_down" {
		must(b.submitAll(ctx))
	}
	say(map[string]any{"event": "ready"})
	expect(input, "go")
	start := time.Now()
	stopTicks := b.tick(start)
	b.run(ctx, start)
	elapsed := time.Since(start).Seconds()
	stopTicks()
	say(map[string]any{"event": "done", "elapsed": elapsed,
		"completed": b.completed.Load(), "submitted": b.submitted.Load()})
	expect(input, "finish")
	b.finish(ctx)
}

func (b *bench) open(ctx context.Context) {
	config, err := pgxpool.ParseConfig(b.spec.DSN)
	must(err)
	if b.spec.Connections > 0 {
		config.MaxConns = b.spec.Connections
	}
	b.pool, err = pgxpool.NewWithConfig(ctx, config)
	must(err)
	driver := riverpgxv5.New(b.pool)
	migrator, err := rivermigrate.New(driver, nil)
	must(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(err)
	workers := river.NewWorkers()
	river.AddWorker(workers, b)
	b.filler = strings.Repeat("x", b.spec.Payload)
	b.client, err = river.NewClient(driver, &river.Config{
		FetchCooldown:     time.Duration(b.spec.CooldownMs) * time.Millisecond,
		FetchPollInterval: time.Duration(b.spec.PollMs) * time.Millisecond,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: max(b.spec.Workers, 1)}},
		Workers:           workers,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	must(err)
}

// run does the measured part.
func (b *bench) run(ctx context.Context, start time.Time) {
	if b.spec.Mode == "submit" {
		must(b.submitAll(ctx))
		return
	}
	must(b.client.Start(ctx))
	if b.spec.Mode == "continuous" {
		b.keepDepth(ctx, start)
		return
	}
	for b.completed.Load() < b.spec.Jobs {
		time.Sleep(time.Millisecond)
	}
	// Waits until the last completions are stored, which belongs to the work.
	must(b.client.Stop(ctx))
}

// keepDepth submits for as long as the run lasts, and never more than may wait.
func (b *bench) keepDepth(ctx context.Context, start time.Time) {
	for time.Since(start).Seconds() < b.spec.Seconds {
		if b.submitted.Load()-b.completed.Load() < b.spec.Depth {
			must(b.submit(ctx, b.spec.SubmitBatch))
		} else {
			time.Sleep(time.Millisecond)
		}
	}
}

// submitAll stores all jobs, by as many callers at once as the specification says.
func (b *bench) submitAll(ctx context.Context) error {
	errs := make(chan error, b.spec.Submitters)
	var callers sync.WaitGroup
	for range b.spec.Submitters {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for b.next.Load() < b.spec.Jobs {
				if err := b.submit(ctx, b.spec.SubmitBatch); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	callers.Wait()
	close(errs)
	return <-errs
}

func (b *bench) submit(ctx context.Context, count int64) error {
	first := b.next.Add(count) - count
	if b.spec.Mode != "continuous" {
		count = min(count, b.spec.Jobs-first)
	}
	if count <= 0 {
		return nil
	}
	params := make([]river.InsertManyParams, count)
	tags := &river.InsertOpts{Tags: []string{"bench", "region-1"}}
	for n := range params {
		params[n] = river.InsertManyParams{Args: noop{first + int64(n), b.filler}, InsertOpts: tags}
	}
	_, err := b.client.InsertManyFast(ctx, params)
	b.submitted.Add(count)
	return err
}

// finish lets the rest be worked, and compares what ran with what is stored.
func (b *bench) finish(ctx context.Context) {
	if b.spec.Mode == "continuous" {
		deadline := time.Now().Add(2 * time.Minute)
		for b.completed.Load() < b.submitted.Load() && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		must(b.client.Stop(ctx))
	}
	var stored, completed, duplicates int64
	must(b.pool.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE state = 'completed') FROM river_job").
		Scan(&stored, &completed))
	for n := range b.next.Load() {
		duplicates += int64(max(b.runs[n].Load()-1, 0))
	}
	accounted := completed
	if b.spec.Mode == "submit" {
		accounted = stored
	}
	say(map[string]any{"event": "ledger", "submitted": b.submitted.Load(), "stored": stored,
		"completed": completed, "duplicates": duplicates, "lost": b.submitted.Load() - accounted})
}

func (b *bench) tick(start time.Time) (stop func()) {
	ticker := time.NewTicker(250 * time.Millisecond)
	go func() {
		for range ticker.C {
			say(map[string]any{"event": "tick", "at": time.Since(start).Seconds(),
				"completed": b.completed.Load(), "submitted": b.submitted.Load()})
		}
	}()
	return ticker.Stop
}

var output sync.Mutex

func say(event map[string]any) {
	line, err := json.Marshal(event)
	must(err)
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

// word reads a line. When the benchmark is gone, so is this program.
func word(input *bufio.Reader) string {
	line, err := input.ReadString('\n')
	must(err)
	return strings.TrimSpace(line)
}

func expect(input *bufio.Reader, want string) {
	if got := word(input); got != want {
		must(fmt.Errorf("expected %q, got %q", want, got))
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}
