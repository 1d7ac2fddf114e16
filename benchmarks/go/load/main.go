// A load generator for HTTP API servers: keep-alive connections, plain or TLS, as little work per
// request as possible, so that it can share the machine with the server it measures.
//
//	load -url http://127.0.0.1:8001 -method POST -path /api/v1/... -body pod.json -n 5000 -c 16
//	load -url ... -watch '/api/v1/pods?watch=1' -watchers 200 -events 1000 -method POST ...
//
// "%d" in path and body becomes the number of the request. One line of JSON tells the result.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	base     = flag.String("url", "", "server")
	method   = flag.String("method", "GET", "")
	path     = flag.String("path", "", "path; %d is the number of the request")
	bodyFile = flag.String("body", "", "file with the body; %d is the number of the request")
	count    = flag.Int("n", 1000, "requests")
	first    = flag.Int("first", 0, "number of the first request")
	clients  = flag.Int("c", 16, "connections")
	rate     = flag.Float64("rate", 0, "requests per second; 0 = as many as can be")
	token    = flag.String("token", "", "bearer token")
	agent    = flag.String("agent", "load", "User-Agent")
	watch    = flag.String("watch", "", "path to watch meanwhile")
	watchers = flag.Int("watchers", 0, "connections that watch")
	events   = flag.Int("events", 0, "events that each of them waits for")
)

type client struct {
	connection net.Conn
	reader     *bufio.Reader
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func dial(target *url.URL) *client {
	connection, err := net.Dial("tcp", target.Host)
	check(err)
	if target.Scheme == "https" {
		secure := tls.Client(connection, &tls.Config{InsecureSkipVerify: true})
		check(secure.Handshake())
		connection = secure
	}
	return &client{connection, bufio.NewReaderSize(connection, 64*1024)}
}

func head(target *url.URL, verb, where string, length int) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\nUser-Agent: %s\r\n", verb, where, target.Host, *agent)
	if *token != "" {
		fmt.Fprintf(&out, "Authorization: Bearer %s\r\n", *token)
	}
	if length > 0 {
		fmt.Fprintf(&out, "Content-Type: application/json\r\nContent-Length: %d\r\n", length)
	}
	out.WriteString("\r\n")
	return out.Bytes()
}

// answer reads status and headers; it returns the length of the body, -1 where it is chunked.
func (c *client) answer() (status, length int, err error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, err
	}
	for {
		line, err = c.reader.ReadSlice('\n')
		if err != nil || len(line) <= 2 {
			return status, length, err
		}
		switch {
		case len(line) > 15 && strings.EqualFold(string(line[:15]), "content-length:"):
			if length, err = strconv.Atoi(strings.TrimSpace(string(line[15:]))); err != nil {
				return 0, 0, err
			}
		case len(line) > 18 && strings.EqualFold(string(line[:18]), "transfer-encoding:"):
			length = -1
		}
	}
}

// chunk reads one chunk and returns its size and the line ends in it.
func (c *client) chunk() (size, lines int, err error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	long, err := strconv.ParseInt(strings.TrimSpace(string(line)), 16, 64)
	if err != nil {
		return 0, 0, err
	}
	left := int(long)
	for left > 0 {
		part, err := c.reader.Peek(min(left, max(c.reader.Buffered(), 1)))
		if err != nil {
			return 0, 0, err
		}
		lines += bytes.Count(part, []byte{'\n'})
		left -= len(part)
		if _, err = c.reader.Discard(len(part)); err != nil {
			return 0, 0, err
		}
	}
	_, err = c.reader.Discard(2)
	return int(long), lines, err
}

func (c *client) do(request []byte) (status, size int) {
	_, err := c.connection.Write(request)
	check(err)
	status, length, err := c.answer()
	check(err)
	if length >= 0 {
		_, err = io.CopyN(io.Discard, c.reader, int64(length))
		check(err)
		return status, length
	}
	for {
		part, _, err := c.chunk()
		check(err)
		size += part
		if part == 0 {
			return status, size
		}
	}
}

func watching(target *url.URL, ready *sync.WaitGroup, done func(time.Time)) {
	c := dial(target)
	_, err := c.connection.Write(head(target, "GET", *watch, 0))
	check(err)
	status, _, err := c.answer()
	check(err)
	if status != 200 {
		check(fmt.Errorf("a watch was answered %d", status))
	}
	ready.Done()
	for seen := 0; seen < *events; {
		_, lines, err := c.chunk()
		check(err)
		seen += lines
	}
	done(time.Now())
}

func main() {
	flag.Parse()
	target, err := url.Parse(*base)
	check(err)
	var body string
	if *bodyFile != "" {
		read, err := os.ReadFile(*bodyFile)
		check(err)
		body = string(read)
	}
	var watched, ready sync.WaitGroup
	var last atomic.Int64
	for i := 0; i < *watchers; i++ {
		watched.Add(1)
		ready.Add(1)
		go watching(target, &ready, func(when time.Time) {
			for now, old := when.UnixNano(), last.Load(); now > old && !last.CompareAndSwap(old, now); old = last.Load() {
			}
			watched.Done()
		})
	}
	ready.Wait()
	var next atomic.Int64
	var bytesRead atomic.Int64
	var mutex sync.Mutex
	statuses := map[int]int{}
	latencies := make([]float64, 0, *count)
	var working sync.WaitGroup
	connections := make([]*client, *clients)
	for i := range connections {
		connections[i] = dial(target)
	}
	start := time.Now()
	for _, c := range connections {
		working.Add(1)
		go func(c *client) {
			defer working.Done()
			mine := make([]float64, 0, *count / *clients + 1)
			seen := map[int]int{}
			for {
				number := int(next.Add(1)) - 1
				if number >= *count {
					break
				}
				if *rate > 0 {
					time.Sleep(time.Until(start.Add(time.Duration(float64(number) / *rate * 1e9))))
				}
				text := strconv.Itoa(number + *first)
				content := strings.ReplaceAll(body, "%d", text)
				request := append(head(target, *method, strings.ReplaceAll(*path, "%d", text), len(content)), content...)
				begin := time.Now()
				status, size := c.do(request)
				mine = append(mine, time.Since(begin).Seconds()*1000)
				seen[status]++
				bytesRead.Add(int64(size))
			}
			mutex.Lock()
			defer mutex.Unlock()
			latencies = append(latencies, mine...)
			for status, times := range seen {
				statuses[status] += times
			}
		}(c)
	}
	working.Wait()
	seconds := time.Since(start).Seconds()
	result := map[string]any{"seconds": seconds, "statuses": statuses, "bytes": bytesRead.Load()}
	if len(latencies) > 0 {
		sort.Float64s(latencies)
		result["per_second"] = float64(len(latencies)) / seconds
		result["p50_ms"] = latencies[len(latencies)/2]
		result["p99_ms"] = latencies[len(latencies)*99/100]
	}
	if *watchers > 0 {
		watched.Wait()
		spread := time.Unix(0, last.Load()).Sub(start).Seconds()
		result["events"] = *watchers * *events
		result["until_last_delivery"] = spread
	}
	check(json.NewEncoder(os.Stdout).Encode(result))
}
