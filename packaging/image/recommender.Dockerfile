# The recommender's image: one static binary, the command line, and their bills of materials; no root. Build the binary first: scripts/build-static
FROM scratch
LABEL org.opencontainers.image.title="evenkeel-recommender" \
      org.opencontainers.image.description="The Evenkeel recommender" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY evenkeel-recommender evenkeel /usr/bin/
COPY evenkeel-recommender.cdx.json evenkeel.cdx.json /usr/share/evenkeel/sbom/
COPY predefined.toml /usr/share/evenkeel/
USER 65532:65532
EXPOSE 9520 9521
ENTRYPOINT ["/usr/bin/evenkeel-recommender"]
