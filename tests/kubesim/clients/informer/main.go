// An informer as client-go has it, for ConfigMaps and EphemeralResources of one namespace: it prints a line for each event
// that its handlers are told of, and "synced" once what was there has been. It knows nothing of the embedded cluster.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const resync = 10 * time.Minute

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: informer KUBECONFIG NAMESPACE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = "application/json"
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() { <-signals; close(stop) }()

	maps := informers.NewSharedInformerFactoryWithOptions(typed, resync, informers.WithNamespace(namespace))
	ofMaps := maps.Core().V1().ConfigMaps().Informer()
	kind := schema.GroupVersionResource{Group: "escher.dev", Version: "v1alpha1", Resource: "ephemeralresources"}
	custom := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, resync, namespace, nil)
	ofCustom := custom.ForResource(kind).Informer()
	for _, informer := range []cache.SharedIndexInformer{ofMaps, ofCustom} {
		if _, err := informer.AddEventHandler(told()); err != nil {
			return err
		}
	}
	maps.Start(stop)
	custom.Start(stop)
	if !cache.WaitForCacheSync(stop, ofMaps.HasSynced, ofCustom.HasSynced) {
		return fmt.Errorf("the caches were never filled")
	}
	fmt.Println("synced")
	<-stop
	return nil
}

func told() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if initial {
				fmt.Println("found", shown(object))
			} else {
				fmt.Println("added", shown(object))
			}
		},
		UpdateFunc: func(old, object any) {
			if old.(metav1.Object).GetResourceVersion() != object.(metav1.Object).GetResourceVersion() {
				fmt.Println("changed", shown(object))
			}
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			fmt.Println("deleted", shown(object))
		},
	}
}

func shown(object any) string {
	switch each := object.(type) {
	case *corev1.ConfigMap:
		return fmt.Sprintf("configmap/%s %s", each.Name, each.Data["k"])
	case *unstructured.Unstructured:
		nodes, _, _ := unstructured.NestedMap(each.Object, "spec", "nodes")
		return fmt.Sprintf("ephemeralresource/%s %v", each.GetName(), nodes["n"])
	}
	return fmt.Sprintf("%T", object)
}
