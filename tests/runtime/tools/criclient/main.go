// The kubelet's own CRI client runs one pod on a runtime and prints what it saw, without ids and times.
//
//	criclient SOCKET IMAGE LOG_DIRECTORY CGROUP_PARENT
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	internalapi "k8s.io/cri-api/pkg/apis"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
)

const logName = "main.log"

func check(step string, err error) {
	if err != nil {
		fmt.Printf("%s: error: %v\n", step, err)
		os.Exit(1)
	}
	fmt.Printf("%s: ok\n", step)
}

func stream(ctx context.Context, runtime internalapi.RuntimeService, id string) (string, error) {
	answer, err := runtime.Exec(ctx, &v1.ExecRequest{
		ContainerId: id, Cmd: []string{"/bin/busybox", "cat"}, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return "", err
	}
	address, err := url.Parse(answer.Url)
	if err != nil {
		return "", err
	}
	executor, err := remotecommand.NewSPDYExecutor(&restclient.Config{}, "POST", address)
	if err != nil {
		return "", err
	}
	input, typed := io.Pipe()
	shown, output := io.Pipe()
	go func() {
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: input, Stdout: output, Stderr: output})
		output.CloseWithError(err)
	}()
	if _, err = io.WriteString(typed, "through the stream\n"); err != nil {
		return "", err
	}
	reader := bufio.NewReader(shown)
	// The input ends after the output has come: a runtime may drop what a process prints while it ends.
	line, err := reader.ReadString('\n')
	typed.Close()
	if err != nil {
		return line, err
	}
	rest, err := io.ReadAll(reader)
	return line + string(rest), err
}

// events follows the runtime's stream of events, and returns a function that ends it and tells what came.
func events(ctx context.Context, runtime internalapi.RuntimeService) func(container string) string {
	ctx, cancel := context.WithCancel(ctx)
	opened, came, ended := make(chan struct{}), make(chan *v1.ContainerEventResponse, 100), make(chan error, 1)
	go func() {
		ended <- runtime.GetContainerEvents(ctx, came, func(v1.RuntimeService_GetContainerEventsClient) { close(opened) })
	}()
	<-opened
	return func(container string) string {
		defer cancel()
		var kinds []string
		for {
			select {
			case event := <-came:
				if event.ContainerId == container {
					kinds = append(kinds, event.ContainerEventType.String())
				}
				if event.ContainerId == container && event.ContainerEventType == v1.ContainerEventType_CONTAINER_DELETED_EVENT {
					return strings.Join(kinds, " ")
				}
			case err := <-ended: // a runtime without this call
				return fmt.Sprint(err)
			case <-ctx.Done():
				return fmt.Sprint(kinds, ctx.Err())
			}
		}
	}
}

func main() {
	socket, image, logs, parent := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	runtime, err := remote.NewRemoteRuntimeService("unix://"+socket, time.Minute, nil, nil)
	check("connect", err)
	version, err := runtime.Version(ctx, "v1")
	check("version", err)
	fmt.Println(version.RuntimeName, version.RuntimeVersion)

	node := &v1.NamespaceOption{Network: v1.NamespaceMode_NODE}
	pod := &v1.PodSandboxConfig{
		Metadata:     &v1.PodSandboxMetadata{Name: "web", Uid: "uid-1", Namespace: "default"},
		LogDirectory: logs,
		Labels:       map[string]string{"app": "web"},
		Linux: &v1.LinuxPodSandboxConfig{
			CgroupParent: parent, SecurityContext: &v1.LinuxSandboxSecurityContext{NamespaceOptions: node}},
	}
	followed := events(ctx, runtime)
	sandbox, err := runtime.RunPodSandbox(ctx, pod, "")
	check("runp", err)
	container, err := runtime.CreateContainer(ctx, sandbox, &v1.ContainerConfig{
		Metadata: &v1.ContainerMetadata{Name: "main"},
		Image:    &v1.ImageSpec{Image: image},
		Command:  []string{"/bin/sh", "-c", "echo started $COLOUR; exec sleep 1000"},
		Envs:     []*v1.KeyValue{{Key: "COLOUR", Value: []byte("blue")}},
		LogPath:  logName,
		Linux: &v1.LinuxContainerConfig{
			Resources:       &v1.LinuxContainerResources{CpuShares: 300, MemoryLimitInBytes: 64 << 20},
			SecurityContext: &v1.LinuxContainerSecurityContext{NamespaceOptions: node}},
	}, pod)
	check("create", err)
	check("start", runtime.StartContainer(ctx, container))

	stdout, stderr, err := runtime.ExecSync(ctx, container, []string{"/bin/busybox", "echo", "inside"}, time.Minute)
	check("exec -s", err)
	fmt.Printf("%q %q\n", stdout, stderr)
	_, stderr, err = runtime.ExecSync(ctx, container, []string{"/bin/busybox", "cat", "/none"}, time.Minute)
	fmt.Printf("exec -s of a failing command: %q %v\n", stderr, err)
	output, err := stream(ctx, runtime, container)
	check("exec", err)
	fmt.Printf("%q\n", output)

	var text string
	for begin := time.Now(); !strings.Contains(text, "started") && time.Since(begin) < time.Minute; {
		content, _ := os.ReadFile(filepath.Join(logs, logName))
		text = string(content)
		time.Sleep(10 * time.Millisecond)
	}
	_, line, _ := strings.Cut(text, " ")
	fmt.Printf("logs: %q\n", line)

	err = runtime.UpdateContainerResources(ctx, container, &v1.ContainerResources{
		Linux: &v1.LinuxContainerResources{CpuShares: 400, MemoryLimitInBytes: 64 << 20}})
	check("update", err)
	status, err := runtime.ContainerStatus(ctx, container, false)
	check("inspect", err)
	fmt.Println(status.Status.Metadata, status.Status.State, status.Status.Resources.GetLinux().GetCpuShares())
	stats, err := runtime.ContainerStats(ctx, container)
	check("stats", err)
	fmt.Println(stats.Attributes.Metadata, stats.Memory.GetWorkingSetBytes().GetValue() > 0)
	pods, err := runtime.ListPodSandbox(ctx, nil)
	check("pods", err)
	names := make([]string, 0, len(pods))
	for _, each := range pods {
		names = append(names, fmt.Sprint(each.Metadata.Name, " ", each.State, " ", each.Labels))
	}
	sort.Strings(names)
	fmt.Println(names)

	check("stop", runtime.StopContainer(ctx, container, 0))
	check("rm", runtime.RemoveContainer(ctx, container))
	check("stopp", runtime.StopPodSandbox(ctx, sandbox))
	check("rmp", runtime.RemovePodSandbox(ctx, sandbox))
	fmt.Println("events:", followed(container))
	_, err = runtime.ContainerStatus(ctx, container, false)
	fmt.Println("inspect of a removed container fails:", err != nil)
	left, err := runtime.ListContainers(ctx, nil)
	check("ps", err)
	fmt.Println(len(left))
}
