"""A client as others write it: gRPC's C core, with nothing set beyond the address. Used by host_clients.rs.

Arguments: address, service, method. Lists the services by both versions of reflection, learns the method's messages
by reflection and calls it with an empty request; prints one JSON object.
"""
import json
import sys

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

address, service, method = sys.argv[1:]
channel = grpc.insecure_channel(address)
database = ProtoReflectionDescriptorDatabase(channel)
earlier = sorted(database.get_services())
# The messages of version 1 are those of v1alpha under another name.
ask = channel.stream_stream(
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
    response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
)
answers = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=20)
current = sorted(one.name for answer in answers for one in answer.list_services_response.service)
described = DescriptorPool(database).FindServiceByName(service).FindMethodByName(method)
request, response = GetMessageClass(described.input_type), GetMessageClass(described.output_type)
call = channel.unary_unary(
    f"/{service}/{method}",
    request_serializer=request.SerializeToString,
    response_deserializer=response.FromString,
)
answer = json_format.MessageToDict(call(request(), timeout=20))
print(json.dumps({"v1alpha": earlier, "v1": current, "answer": answer}))
