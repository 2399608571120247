// A client as others write it: grpc-go, with nothing set beyond the address. Used by host_clients.rs.
//
// grpc_client ADDRESS: prints the status of the health service and what reflection lists, a line each.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	health "google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	connection, err := grpc.DialContext(ctx, os.Args[1], grpc.WithInsecure(), grpc.WithBlock())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	answer, err := health.NewHealthClient(connection).Check(ctx, &health.HealthCheckRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Status)
	stream, err := reflection.NewServerReflectionClient(connection).ServerReflectionInfo(ctx)
	if err != nil {
		log.Fatal(err)
	}
	list := &reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(list); err != nil {
		log.Fatal(err)
	}
	services, err := stream.Recv()
	if err != nil {
		log.Fatal(err)
	}
	for _, service := range services.GetListServicesResponse().Service {
		fmt.Println(service.Name)
	}
}
