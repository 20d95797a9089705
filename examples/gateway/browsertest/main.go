// Command browsertest takes the picture of the gateway's page for the README. It starts
// the gateway and a headless chromium, sends requests until one is refused, and writes a
// picture of the page. Its tests use the same page.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"time"

	"github.com/chromedp/chromedp"
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "../page.png", "file to write the picture to")
	width := flag.Int64("width", 880, "width of the window, in CSS pixels")
	scheme := flag.String("scheme", "light", "color scheme: light or dark")
	flag.Parse()
	picture, err := takePicture(*width, *scheme)
	if err == nil {
		err = os.WriteFile(*out, picture, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func takePicture(width int64, scheme string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	folder, err := os.MkdirTemp("", "gateway")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	binary, err := buildGateway(ctx, folder)
	if err != nil {
		return nil, err
	}
	url, stop, err := startGateway(ctx, binary)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stop() }() // the picture does not depend on how the gateway ends
	browser, closeBrowser := startBrowser(ctx)
	defer closeBrowser()
	const s = time.Second
	err = chromedp.Do(browser,
		showAs(width, 600, scheme), chromedp.Navigate(url), awaitAnswers(1),
		chromedp.Sleep(2*s), press("/export"), awaitAnswers(2),
		chromedp.Sleep(2*s), press("/read"), awaitAnswers(3),
		chromedp.Sleep(3*s), press("/export"), awaitAnswers(4),
		chromedp.Sleep(2*s), press("/export"),
		await(`document.getElementById("status").dataset.ok === "false"`),
		chromedp.Sleep(s/2))
	if err != nil {
		return nil, err
	}
	return chromedp.Run(browser, chromedp.FullScreenshot(100))
}
