# The agent's image: one static binary, the command line, and their bills of materials. Build the binary first: scripts/build-static
FROM scratch
LABEL org.opencontainers.image.title="evenkeel-agent" \
      org.opencontainers.image.description="The Evenkeel node agent" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY evenkeel-agent evenkeel /usr/bin/
COPY evenkeel-agent.cdx.json evenkeel.cdx.json /usr/share/evenkeel/sbom/
USER 0
# Enforces unless the configuration names another mode; arguments of one's own take the place of this.
ENTRYPOINT ["/usr/bin/evenkeel-agent"]
CMD ["--default-mode", "enforce"]
