// Checks a ledger with the readers of Go's checksum database: vkey, checkpoint, entries and proofs.
package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/ioutil"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func require(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func read(path string) []byte {
	data, err := ioutil.ReadFile(path)
	require(err)
	return data
}

// open verifies a checkpoint and returns its size and its root.
func open(verifier note.Verifier, checkpoint []byte) (int64, tlog.Hash) {
	opened, err := note.Open(checkpoint, note.VerifierList(verifier))
	require(err)
	lines := strings.Split(opened.Text, "\n")
	if lines[0] != verifier.Name() {
		require(fmt.Errorf("origin %q", lines[0]))
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	require(err)
	root, err := tlog.ParseHash(lines[2])
	require(err)
	return size, root
}

func main() {
	verifier, err := note.NewVerifier(strings.TrimSpace(string(read(os.Args[1] + "/vkey"))))
	require(err)
	size, root := open(verifier, read(os.Args[1]+"/checkpoint"))

	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var found []tlog.Hash
		for _, index := range indexes {
			found = append(found, stored[index])
		}
		return found, nil
	})
	lines := bytes.Split(read(os.Args[1]+"/entries.jsonl"), []byte("\n"))
	for number, line := range lines[:len(lines)-1] {
		hashes, err := tlog.StoredHashes(int64(number), line, reader)
		require(err)
		stored = append(stored, hashes...)
	}
	all, err := tlog.TreeHash(size, reader)
	require(err)
	if all != root {
		require(fmt.Errorf("root %v, not %v", all, root))
	}

	for _, path := range os.Args[2:] {
		head, checkpoint, _ := bytes.Cut(read(path), []byte("\n\n"))
		size, root := open(verifier, checkpoint)
		texts := strings.Split(string(head), "\n")
		index, err := strconv.ParseInt(strings.TrimPrefix(texts[1], "index "), 10, 64)
		require(err)
		var proof tlog.RecordProof
		for _, text := range texts[2:] {
			hash, err := base64.StdEncoding.DecodeString(text)
			require(err)
			proof = append(proof, *(*tlog.Hash)(hash))
		}
		require(tlog.CheckRecord(proof, size, root, index, tlog.RecordHash(lines[index])))
	}
	fmt.Println("accepted", size, len(os.Args)-2)
}
